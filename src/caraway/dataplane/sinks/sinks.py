"""All sinks that one server writes, each by a worker in a thread of its own."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa
import structlog

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits, Holder
from caraway.dataplane.archive.store.past import ArchivedPast
from caraway.dataplane.confined.process import end_of
from caraway.dataplane.sinks.envelopes import Envelopes, Product
from caraway.dataplane.sinks.feed import Feed, TopicFeed
from caraway.dataplane.sinks.letters import WRITE_S, SinkLetters
from caraway.dataplane.sinks.positions import SinkPositions
from caraway.dataplane.sinks.remote import RemoteWriter, check_sink
from caraway.dataplane.sinks.replays import QueuedReplays
from caraway.dataplane.sinks.table_state import TableState
from caraway.dataplane.sinks.worker import LASTING, RENEWAL_S, SinkWorker
from caraway.dataplane.sinks.writer import Refusal, SignIn, SinkWriter, Writing
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.left_out import LeftOutLetters
from caraway.dataplane.topics.letter_reader import LetterReader
from caraway.dataplane.topics.local_state import remove
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import SinkPlan
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.process.recurring import Recurring, follow
from caraway.state.losses import Loss, Losses
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.ownership.members import WRITERS
from caraway.state.ownership.shares import Shares
from caraway.state.sink_replays import SinkReplays

LOG = structlog.get_logger(__name__)

# The first pause after a failure, in seconds, which doubles with each further one, and the longest one.
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
# The seconds between two looks whether another server still writes a sink.
STANDBY_S = 2.0
# The seconds after which a server looks which sinks it is to write, and starts and stops workers; `set_plans` makes it
# do so at once.
FOLLOW_S = 5.0
# The seconds for which the stop of a worker is awaited, which first finishes what it is doing; then its process is
# ended.
STOP_S = 5.0
# The seconds after which the check of a sink is given up, and its process ended.
CHECK_S = 60.0
FOLDER = "sinks"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """The state of a sink, as one server knows it.

    Attributes:
        dataset: The dataset whose changes are written.
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
    sink: str
    target: str
    system: str
    state: str
    owned: bool
    guarantee: str
    backlog: int | None
    offsets: Mapping[int, int]
    written_at: float | None
    dead_letters: int
    error: str


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
        self._engine = engine
        self._member = member
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
        self._shares = Shares(engine, WRITERS, member)
        self._wanted: Mapping[str, SinkPlan] = {}
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._follower = Recurring("sinks", self._follow, FOLLOW_S)

    def start(self) -> None:
        """Start to write."""
        self._follower.start()

    def stop(self) -> None:
        """Stop to write, and let other servers do it."""
        self._follower.stop(STOP_S)
        self.set_plans(())
        with suppress(UnavailableError):
            # If it isn't known which sinks are this server's, it hasn't begun to write any.
            self._follow()
        with suppress(UnavailableError):
            self._shares.leave()
        if self._letters is not None:
            self._letters.close(STOP_S)
        self._left_out.close()
        self._letter_reader.close()

    def set_plans(self, sinks: Iterable[SinkPlan]) -> None:
        """Write these sinks from now on."""
        self._wanted = {sink.sink_id: sink for sink in sinks}
        self._follower.wake()

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
        running = dict(self._running)
        others = [_standby(plan) for name, plan in self._wanted.items() if name not in running]
        return [*(each.status for each in running.values()), *others]

    def _follow(self) -> None:
        """Start and stop workers, so that they are those of the wanted sinks that this server is to write."""
        with self._lock:
            known = self._wanted
            mine = self._shares.mine(known)
            follow(self._running, {name: plan for name, plan in known.items() if name in mine}, self._run, STOP_S)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.sqlite"

    def _run(self, name: str, plan: SinkPlan) -> "_Running":
        if self._letters is None:
            self._letters = TopicWriter(self._bootstrap_servers, timeout_s=WRITE_S)
        secrets = HiddenSecrets(self._sign_in.resolve)
        hold = Holder(self._limits, plan.sink.connector, writes=True)
        running = _Running(plan, self._worker(name, plan, self._letters, secrets), secrets, hold)
        running.work.start()
        return running

    def _worker(self, name: str, plan: SinkPlan, letters: TopicWriter, secrets: HiddenSecrets) -> SinkWorker:
        right = HeldLease(
            Lease(engine=self._engine, name=f"sink {name}", owner=self._member), LASTING, renew_s=RENEWAL_S
        )
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
                # The system that gives the reason may quote the credentials with which it was called.
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


class _Running:
    """A sink that is being written."""

    def __init__(self, plan: SinkPlan, worker: SinkWorker, secrets: HiddenSecrets, hold: Holder) -> None:
        self.plan = plan
        self._hold = hold
        self._secrets = secrets
        self._worker = worker
        self._owned = False
        title = f"sink {plan.sink.connector.identifier} of {plan.dataset.name}"
        self.work = Recurring(
            title,
            self._run,
            self._pause_s,
            retry_s=(FIRST_RETRY_S, LONGEST_RETRY_S),
            at_once=True,
            finish=self._worker.stop,
            interrupt=end_of,
        )
        self.work.stopping = worker.stopping

    @property
    def status(self) -> SinkStatus:
        """The state of the sink."""
        plan, worker, failure = self.plan, self._worker, self.work.failure
        return SinkStatus(
            dataset=plan.dataset.name,
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

    def _run(self) -> None:
        with self._secrets.hidden(), self._hold():
            self._owned = self._worker.step()

    def _pause_s(self) -> float:
        """Return the seconds before the next step: 0 while this server may write, as a step waits itself."""
        return 0.0 if self._owned else STANDBY_S


def _standby(plan: SinkPlan) -> SinkStatus:
    """Return the state of a sink that another server is to write."""
    return SinkStatus(
        dataset=plan.dataset.name,
        sink=plan.sink.connector.identifier,
        target=plan.target,
        system=plan.sink.connector.system_name,
        state="standby",
        owned=False,
        guarantee="",
        backlog=None,
        offsets={},
        written_at=None,
        dead_letters=0,
        error="",
    )


def _state(worker: SinkWorker, failure: str) -> str:
    if failure:
        return "failing"
    if not worker.owned:
        return "standby"
    return "refused" if worker.refusal else "writing"
