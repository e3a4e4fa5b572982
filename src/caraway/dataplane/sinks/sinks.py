"""All sinks that one server writes, each by a worker in a thread of its own."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa
import structlog

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits, Holder
from caraway.dataplane.archive.store.past import ArchivedPast
from caraway.dataplane.confined.fleet import STOP_S, Fleet, Leased
from caraway.dataplane.sinks.envelopes import Envelopes, Product
from caraway.dataplane.sinks.feed import Feed, TopicFeed
from caraway.dataplane.sinks.letters import WRITE_S, SinkLetters
from caraway.dataplane.sinks.positions import SinkPositions
from caraway.dataplane.sinks.remote import RemoteWriter, check_sink
from caraway.dataplane.sinks.replays import QueuedReplays
from caraway.dataplane.sinks.table_state import TableState
from caraway.dataplane.sinks.worker import SinkWorker
from caraway.dataplane.sinks.writer import Refusal, SignIn, SinkWriter, Writing
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.left_out import LeftOutLetters
from caraway.dataplane.topics.letter_reader import LetterReader
from caraway.dataplane.topics.local_state import remove
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import SinkPlan
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.state.losses import Loss, Losses
from caraway.state.ownership.members import WRITERS
from caraway.state.sink_replays import SinkReplays

LOG = structlog.get_logger(__name__)

# The seconds until a failed sink is tried again: after its first failure, and at most after many failures.
RETRY_S = (1.0, 60.0)
# After this many seconds the check of a sink fails, and its process is ended.
CHECK_S = 60.0
FOLDER = "sinks"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """The state of a sink, as one server knows it.

    Attributes:
        dataset: The dataset whose changes are written.
        sink_id: The name of the sink's asset.
        sink: The connector, as people read it.
        target: The name of the thing that is written.
        system: The name of its system.
        state: "writing", "refused" if the other side has refused the last batch, "failing" if `error` says why nothing
            is written, or "standby" if another server writes it, or nobody yet.
        owned: True if this server writes it.
        guarantee: "exactly once" or "at least once"; empty if this server doesn't write it now.
        backlog: How many messages of the dataset's topic aren't written yet; None if this server doesn't know.
        offsets: The offset behind the last message that is written, by partition.
        written_at: When this server wrote last, in seconds since the epoch; None if it has written nothing.
        dead_letters: How many changes became dead letters since this server started to write.
        error: Why it can't be written, or why the last batch was refused; empty if nothing failed.
    """

    dataset: str
    sink_id: str
    sink: str
    target: str
    system: str
    state: str
    owned: bool = False
    guarantee: str = ""
    backlog: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    written_at: float | None = None
    dead_letters: int = 0
    error: str = ""


class Sinks:
    """Writes the sinks that the branches need. Thread safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        engine: sa.Engine,
        *,
        member: str,
        folder: Path,
        objects_url: str,
        erased: ErasedKeys,
        sign_in: SignIn,
        product: Product = "caraway",
        limits: ConnectorLimits = UNLIMITED,
    ) -> None:
        """Prepare; nothing is written before `start`.

        Args:
            bootstrap_servers: The deployment's own broker, "host:port".
            engine: The database (`caraway.state.database.connect`).
            member: The name of this server among those that compete for sinks.
            folder: The folder of this server's data.
            objects_url: The object store with the archive.
            erased: The erased keys.
            sign_in: How to connect to systems.
            product: The name of the platform in what sinks write.
            limits: The limits of sinks.
        """
        self._limits = limits
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder / FOLDER
        self._objects_url = objects_url
        self._erased = erased
        self._sign_in = sign_in
        self._product = product
        self.positions = SinkPositions(engine)
        self._losses = Losses(engine)
        self.replays = SinkReplays(engine)
        """The dead letters whose changes are to be sent again."""
        self._letter_reader = LetterReader(bootstrap_servers)
        # The producer of dead letters, made when the first sink starts.
        self._letters: TopicWriter | None = None
        self._left_out = LeftOutLetters(bootstrap_servers, "sink")
        self._fleet = Fleet("sink", engine, WRITERS, member, self._begin)

    def start(self) -> None:
        """Start to write."""
        self._fleet.start()

    def stop(self) -> None:
        """Stop to write, and let other servers do it."""
        self._fleet.stop()
        if self._letters is not None:
            self._letters.close(STOP_S)
        self._left_out.close()
        self._letter_reader.close()

    def set_plans(self, sinks: Iterable[SinkPlan]) -> None:
        """Write these sinks from now on."""
        self._fleet.set_plans({sink.sink_id: sink for sink in sinks})

    def check(self, plan: SinkPlan) -> None:
        """Check that a sink can be written, without changing anything.

        Raises:
            CommitError: Its system doesn't answer or refuses, or what must exist doesn't.
            UnavailableError, UnknownEntityError: A secret can't be looked up.
        """
        secrets = HiddenSecrets(self._sign_in.resolve)
        hold = self._limits.hold(plan.sink.connector, writes=True)
        with secrets.hidden(), hold():
            check_sink(plan, replace(self._sign_in, resolve=secrets), self._limits, CHECK_S)

    def forget(self, gone: Collection[str]) -> None:
        """Remove what is kept of sinks that are gone for good; what they have written stays.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        self.positions.forget(gone)
        self.replays.forget(gone)
        for name in gone:
            if self._path(name).exists():
                remove(self._path(name))

    def statuses(self) -> list[SinkStatus]:
        """Return the state of each sink."""
        return self._fleet.statuses(_status, _standby)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.sqlite"

    def _begin(self, name: str, plan: SinkPlan) -> Leased[SinkPlan, SinkWorker]:
        if self._letters is None:
            self._letters = TopicWriter(self._bootstrap_servers, timeout_s=WRITE_S)
        secrets = HiddenSecrets(self._sign_in.resolve)
        hold = Holder(self._limits, plan.sink.connector, writes=True)
        worker = self._worker(name, plan, self._letters, secrets)
        title = f"sink {plan.sink.connector.identifier} of {plan.dataset.name}"
        made = Leased(plan, worker, title=title, secrets=secrets, hold=hold, retry_s=RETRY_S, finish=worker.stop)
        made.work.stopping = worker.stopping
        return made

    def _worker(self, name: str, plan: SinkPlan, letters: TopicWriter, secrets: HiddenSecrets) -> SinkWorker:
        right = self._fleet.right(name)
        stopping = threading.Event()

        def feed() -> Feed:
            past = ArchivedPast(self._bootstrap_servers, self._objects_url, plan.topic.name, plan.topic.schema)
            return TopicFeed(self._bootstrap_servers, plan.topic.name, past)

        def connect(branch: str, refuse: Callable[[Sequence[Refusal]], None]) -> SinkWriter:
            writing = Writing(
                plan=plan,
                name=name,
                branch=branch,
                sign_in=replace(self._sign_in, resolve=secrets),
                product=self._product,
                # The reason comes from the external system, and may quote the credentials with which that system was
                # called. So the credentials are hidden before the reason becomes part of a dead letter.
                refuse=lambda refusals: refuse([replace(each, reason=secrets.hide(each.reason)) for each in refusals]),
                keep=partial(right.keep, succeeds=True),
                pause=stopping.wait,
            )
            return RemoteWriter(writing, self._limits)

        return SinkWorker(
            name,
            plan,
            connect=connect,
            refuse=lambda branch, refusals: SinkLetters(
                name, plan, Envelopes(plan, branch, self._product), letters
            ).write(refusals),
            leave_out=self._left_out.write,
            note_loss=lambda text: self._note_loss(name, plan, text),
            feed=feed,
            state=lambda: TableState(self._path(name), revised=plan.topic.revised, keyed=bool(plan.topic.schema.keys)),
            right=right,
            positions=self.positions,
            erased=self._erased,
            asked=QueuedReplays(self._letter_reader, self.replays, name),
            stopping=stopping,
        )

    def _note_loss(self, name: str, plan: SinkPlan, text: str) -> None:
        LOG.error(text)
        self._losses.note(Loss(topic=plan.topic.name, follower=name, kind="sink", text=text))


def _status(running: Leased[SinkPlan, SinkWorker]) -> SinkStatus:
    """Return the state of a sink that this server is to write."""
    plan, worker, failure = running.plan, running.worker, running.work.failure
    return SinkStatus(
        dataset=plan.dataset.name,
        sink_id=plan.sink_id,
        sink=plan.sink.connector.identifier,
        target=plan.target,
        system=plan.sink.connector.system_name,
        state=_state(worker, failure),
        owned=worker.owned,
        guarantee=worker.guarantee,
        backlog=worker.lag,
        offsets=worker.offsets,
        written_at=worker.written_at,
        dead_letters=worker.refused,
        error=failure or worker.refusal,
    )


def _standby(plan: SinkPlan) -> SinkStatus:
    """Return the state of a sink that another server is to write."""
    return SinkStatus(
        dataset=plan.dataset.name,
        sink_id=plan.sink_id,
        sink=plan.sink.connector.identifier,
        target=plan.target,
        system=plan.sink.connector.system_name,
        state="standby",
    )


def _state(worker: SinkWorker, failure: str) -> str:
    if failure:
        return "failing"
    if not worker.owned:
        return "standby"
    return "refused" if worker.refusal else "writing"
