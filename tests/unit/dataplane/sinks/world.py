"""All that outlives the worker of a sink, in memory: the topic, the position, the lease, and the system outside."""

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from caraway.dataplane.confined.fleet import LASTING, RENEWAL_S
from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.envelopes import Envelopes, Product
from caraway.dataplane.sinks.feed import Feed
from caraway.dataplane.sinks.positions import SinkPosition
from caraway.dataplane.sinks.replays import Again
from caraway.dataplane.sinks.table_state import TableState
from caraway.dataplane.sinks.worker import SinkWorker
from caraway.dataplane.sinks.writer import Batch, Refusal, RetryLaterError, SignIn, Writing
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.left_out import LeftOut
from caraway.dataplane.topics.reader import Message
from caraway.dataplane.topics.truncation import Continuation, Reached
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.errors import UnavailableError
from caraway.graph.connectors import HTTPConnector, WebhookConnector
from caraway.graph.operators import Input, Select
from caraway.graph.plan.model import Column, SinkPlan, on_branch
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import Graph, PipelineSpec
from caraway.graph.systems import HTTPSystem
from tests.unit.graph.building import dataset
from tests.unit.leased import Leased

SYSTEM = HTTPSystem(name="hooks", host="https://hooks", healthz="/ok", ca_cert="")
SINK = SinkSpec(connector=HTTPConnector(system=SYSTEM, endpoint="/changes"), cdc=Cdc.DEBEZIUM)
WEB = WebhookConnector(name="w", endpoint="e", retention_us=0)
COLUMNS: dict[str, DataType] = {"k": STRING, "v": FLOAT, "n": optional(INT), "at": DATETIME}


def plan_of(*, keyed: bool = True, revised: bool = True, sink: SinkSpec = SINK) -> SinkPlan:
    """Return the plan of a sink of a dataset with the columns k, v and n, as if its topic had such records."""
    source = SourceSpec(connector=WEB, cdc=Cdc.UPSERT if keyed else Cdc.APPEND, disorder_us=0)
    events = dataset("Events", COLUMNS, keys=["k"] if keyed else [], sources=(source,))
    pipeline = PipelineSpec(
        name="all", inputs=("Events",), operator=Select(of=Input(dataset="Events"), columns=("k", "v", "n"))
    )
    table = replace(events, name="Table", sources=(), pipelines=(pipeline,), sinks=(sink,), version=3)
    plan = on_branch(plan_graph(Graph(datasets=(events, table))), "main").sinks[0]
    return replace(plan, topic=replace(plan.topic, revised=revised))


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as a writer of the topic sends it; `row` is None only for a retraction."""

    key: str
    id: bytes
    rev: bytes
    op: int
    time: int
    row: tuple[str, float, int | None] | None


def message(plan: SinkPlan, sent: Sent, partition: int, offset: int) -> Message:
    codec = RecordCodec(plan.topic.schema)
    value = codec.encode_value(
        op=sent.op, time_us=sent.time, ingested_us=0, row=sent.row, record_id=sent.id, rev=sent.rev or None
    )
    key = codec.encode_key([sent.key]) if plan.topic.schema.keys else None
    return key, value, partition, offset


@dataclass
class World(Leased):
    """The world around a worker.

    Attributes:
        plan: The sink.
        folder: The folder of the worker's state.
        topic: The messages of each partition, of which those before `there` can be read.
        there: The end of each partition.
        received: The envelopes that the system outside took, in order.
        acknowledged: The positions that the system keeps itself, if `transactional`.
        remembers: True if these positions alone count.
        refused: The keys of rows that the system refuses.
        busy: The number of requests that the system doesn't take.
        leaders: The epochs of the leaders of each partition, in order, with the offset from which each led.
        losses: The texts that the operator was told of lost records.
        left_out: The records that couldn't be read, with their datasets.
        feed: Opens a topic of a broker in place of `topic`, if it is set.
    """

    plan: SinkPlan
    folder: Path
    topic: dict[int, list[Message]]
    transactional: bool = False
    remembers: bool = False
    there: dict[int, int] = field(default_factory=dict)
    asked: list[Again] = field(default_factory=list)
    outcomes: dict[int, str] = field(default_factory=dict)
    settled: int = 0
    refusals: list[Change] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    saved: SinkPosition | None = None
    refused: frozenset[str] = frozenset()
    busy: int = 0
    sizes: Callable[[], int] = lambda: 1000
    closed: int = 0
    state: TableState | None = None
    leaders: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    left_out: list[tuple[str, LeftOut]] = field(default_factory=list)
    feed: Callable[[], Feed] | None = None

    def lose(self, partition: int, offset: int) -> None:
        """Lose the messages of a partition from an offset on, as a broker does that loses its power."""
        del self.topic[partition][offset:]
        led = self.leaders.setdefault(partition, [])
        led.append((len(led) + 1, offset))

    # The positions.
    def load(self, sink: str) -> SinkPosition | None:
        del sink
        return self.saved

    def save(self, sink: str, token: int, position: SinkPosition) -> bool:
        del sink
        self.burn()
        if token < self.owner_token:
            return False
        self.saved = position
        return True

    # The dead letters that are to be sent again.
    def after(self, number: int) -> list[Again]:
        return [each for each in self.asked if each.number > number][:2]

    def note(self, outcomes: Mapping[int, str]) -> None:
        self.burn()
        self.outcomes |= outcomes

    def settle(self, number: int) -> None:
        self.settled = max(self.settled, number)

    def worker(self, erased: ErasedKeys | None = None) -> SinkWorker:
        envelopes = Envelopes(self.plan, "main", clock=lambda: self.now)

        def refuse(branch: str, refusals: Sequence[Refusal]) -> None:
            assert branch == "main"
            self.burn()
            self.refusals += [refusal.change for refusal in refusals]
            self.letters += [envelopes.envelope(refusal.change)["payload"] for refusal in refusals]

        return SinkWorker(
            "sink",
            self.plan,
            connect=lambda branch, refuse: Outside(self, Envelopes(self.plan, branch), refuse),
            refuse=refuse,
            note_loss=self.losses.append,
            leave_out=lambda dataset, _, records: self.left_out.extend((dataset, record) for record in records),
            feed=self.feed or (lambda: MemoryFeed(self)),
            state=self.opened,
            right=self.held(LASTING, RENEWAL_S),
            positions=self,
            erased=erased or ErasedKeys(dict),
            asked=self,
            clock=lambda: self.now,
            stopping=Ticking(self),
        )

    def step_of(self, worker: SinkWorker) -> None:
        """Run a step of a worker, some time after the last one."""
        self.now += 0.4
        worker.step()

    def other_disk(self, keeps_old: bool) -> None:
        """Move the next worker to another server, which has the state of now, or none."""
        known = self.folder / "state.sqlite"
        self.folder = Path(tempfile.mkdtemp(dir=self.folder))
        if keeps_old and known.exists():
            for ending in ("", "-wal"):
                if (file := known.with_name(known.name + ending)).exists():
                    shutil.copy(file, self.folder / file.name)

    def opened(self) -> TableState:
        self.state = TableState(
            self.folder / "state.sqlite", revised=self.plan.topic.revised, keyed=bool(self.plan.topic.schema.keys)
        )
        return self.state

    def end_process(self) -> None:
        """Close the files of a worker as the end of its process does: without what isn't committed."""
        if self.state is not None:
            self.state.close()

    def run(self) -> SinkWorker:
        """Run a worker that writes all that is there, and whose process then ends."""
        worker = self.worker()
        self.step_of(worker)
        self.write_all(worker)
        self.end_process()
        return worker

    def write_all(self, worker: SinkWorker) -> None:
        """Run a worker until it has written all that is there."""
        while worker.offsets != self.ends():
            self.now += 0.4
            assert worker.step()

    def ends(self) -> dict[int, int]:
        return {p: self.there.get(p, len(messages)) for p, messages in self.topic.items()}

    def once(self) -> list[dict[str, Any]]:
        """Return what a consumer keeps that leaves out what has a position which it has seen."""
        seen: set[tuple[int, int]] = set()
        found = []
        for envelope in self.received:
            position = place(envelope)
            if position not in seen:
                seen.add(position)
                found.append(envelope)
        return found


class Ticking(threading.Event):
    """An event whose waits let the clock of the world go on."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        self._world.now += timeout or 0.0
        return False


class MemoryFeed:
    """The topic of a world, in reads of invented sizes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: dict[int, int] = {}
        self._started: dict[int, int] = {}

    def partitions(self) -> list[int]:
        return sorted(self._world.topic)

    def start(self, offsets: Mapping[int, int]) -> None:
        self._read, self._started = dict(offsets), dict(offsets)

    def read(self, timeout_s: float) -> list[Message]:
        self._world.now += 0.01
        assert timeout_s > 0
        found: list[Message] = []
        for partition, messages in self._world.topic.items():
            begin, end = self._read[partition], self._world.ends()[partition]
            some = messages[begin : min(end, begin + self._world.sizes())]
            self._read[partition] = begin + len(some)
            found += some
        return found

    def positions(self) -> Mapping[int, int]:
        return self._read

    def epochs(self) -> Mapping[int, int]:
        return {
            p: max((epoch for epoch, since in self._world.leaders.get(p, []) if since < read), default=0)
            for p, read in self._read.items()
            if read > self._started[p]
        }

    def continuation(self, reached: Reached) -> Continuation:
        known = reached.known()

        def end(partition: int) -> int:
            """Return where the epoch ended to which a position belongs, or the end of the topic."""
            leaders = self._world.leaders.get(partition, [])
            at = known.get(partition)
            lost = [since for epoch, since in leaders if at and epoch > at.epoch and since < at.offset]
            return min([*lost, len(self._world.topic[partition])])

        return Continuation("t", reached.offsets, {p: min(at, end(p)) for p, at in reached.offsets.items()})

    def ends(self) -> Mapping[int, int]:
        return self._world.ends()

    def lag(self) -> int:
        return sum(self._world.ends().values()) - sum(self._read.values())

    def close(self) -> None:
        self._world.closed += 1


class Outside:
    """The system outside, which takes changes one by one, or a batch as a whole with its positions."""

    def __init__(self, world: World, envelopes: Envelopes, refuse: Callable[[Sequence[Refusal]], None]) -> None:
        self._world, self._envelopes, self._refuse = world, envelopes, refuse
        self.guarantee = "exactly once" if world.transactional else "at least once"
        self.remembers = world.remembers

    def positions(self) -> Mapping[int, int]:
        return dict(self._world.acknowledged)

    def write(self, batch: Batch) -> None:
        world = self._world
        assert batch.changes or world.remembers
        if not world.transactional:
            for change in batch.changes[batch.sent :]:
                if world.busy:
                    world.busy -= 1
                    raise RetryLaterError("busy")
                world.burn()
                if change.row.values[0] in world.refused:
                    self._refuse([Refusal(change, "no")])
                else:
                    world.received.append(orjson.loads(self._envelopes.value(change)))
                batch.sent += 1
            return
        if world.busy:
            world.busy -= 1
            raise UnavailableError("gone")
        world.burn()
        refused = [change for change in batch.changes if change.row.values[0] in world.refused]
        if refused:
            self._refuse([Refusal(change, "no") for change in refused])
        # The transaction: all of it happens, or nothing.
        taken = [change for change in batch.changes if change not in refused]
        world.received += [orjson.loads(self._envelopes.value(change)) for change in taken]
        world.acknowledged = dict(batch.reached)
        world.burn()

    def close(self) -> None:
        self._world.closed += 1


def place(envelope: Mapping[str, Any]) -> tuple[int, int]:
    source = envelope["payload"]["source"]["caraway"]
    return source["partition"], source["offset"]


def writing(
    plan: SinkPlan,
    *,
    name: str = "sink",
    product: Product = "caraway",
    sign_in: SignIn | None = None,
    refuse: Callable[[Sequence[Refusal]], None] = lambda _: None,
    keep: Callable[[], bool] = lambda: True,
    pause: Callable[[float], object] = lambda _: None,
) -> Writing:
    """Return all that the writer of a sink needs to know."""
    return Writing(
        plan=plan,
        name=name,
        branch="main",
        sign_in=sign_in or SignIn(resolve=str),
        product=product,
        refuse=refuse,
        keep=keep,
        pause=pause,
    )


def row(key: str, value: float, note: int | None = None, time: int = 1) -> Row:
    return Row(time, (key, value, note))


def change(key: str, before: Row | None, after: Row | None, offset: int) -> Change:
    return Change(key.encode(), before, after, 1, 0, offset)


def of_columns(plan: SinkPlan, columns: Mapping[str, DataType], keys: Sequence[str]) -> SinkPlan:
    """Return a plan whose topic has other columns."""
    made = tuple(Column(name=name, dtype=dtype) for name, dtype in columns.items())
    chosen = tuple(column for column in made if column.name in keys)
    return replace(plan, topic=replace(plan.topic, schema=replace(plan.topic.schema, columns=made, keys=chosen)))
