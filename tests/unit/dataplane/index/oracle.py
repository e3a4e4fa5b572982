"""The aggregate inputs that a job writes for some rows, and the in-process engine's results for the same rows."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from caraway.compute.reference.changes import SourceChange
from caraway.compute.reference.engine import LocalEngine
from caraway.dataplane.topics.codec import DELETE, PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, DecimalType, ListType, StructType, optional
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate, Input
from caraway.graph.plan.model import IndexPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from tests.unit.compute.reference.building import dataset, derived, spec_of

SECOND = 1_000_000
# It is read on import, because the tests remove settings from outside.
SEED = os.environ.get("CARAWAY_SEED")

COLUMNS: dict[str, DataType] = {
    "g": STRING,
    "n": optional(INT),
    "x": optional(FLOAT),
    "d": optional(DecimalType(2)),
    "s": optional(STRING),
    "l": ListType(optional(FLOAT)),
    "p": StructType("Place", (("a", INT), ("b", optional(STRING)))),
    "due": DATETIME,
    "t": DATETIME,
}
EVENTS = dataset("Events", COLUMNS)
TABLE = dataset("Table", {"k": STRING, **COLUMNS}, keys=["k"])

FUNCTION = AggregateFunction
Window = ContinuousWindow | HoppingWindow | None


def every_function(window: Window, source: DatasetSpec, tag: str) -> list[AggregateSpec]:
    """Return all functions with all their parameters over one window."""
    made: list[AggregateSpec] = []

    def add(function: AggregateFunction, of: str | None = None, **parameters: Any) -> None:
        made.append(spec_of(function, of, window, f"{tag}_{len(made)}", source, **parameters))

    add(FUNCTION.COUNT)
    for of in ("n", "s"):
        add(FUNCTION.COUNT, of, dropnull=True)
        add(FUNCTION.COUNT, of, unique=True, approx=True)
        add(FUNCTION.COUNT, of, unique=True, approx=True, dropnull=True)
        add(FUNCTION.DISTINCT, of)
        add(FUNCTION.DISTINCT, of, dropnull=True)
    add(FUNCTION.DISTINCT, "d")
    for of in ("n", "x", "d"):
        add(FUNCTION.SUM, of)
        add(FUNCTION.AVERAGE, of, default=-1.0)
        add(FUNCTION.STDDEV, of, default=-1.0)
        add(FUNCTION.VARIANCE, of, default=-1.0)
        add(FUNCTION.MIN, of)
        add(FUNCTION.MAX, of)
        add(FUNCTION.QUANTILE, of, p=0.5, approx=True)
        add(FUNCTION.QUANTILE, of, p=0.9, approx=True, default=-5.0)
        add(FUNCTION.EXP_DECAY_SUM, of, half_life_us=3 * SECOND)
    for function in (FUNCTION.LAST_K, FUNCTION.FIRST_K):
        add(function, "l", limit=2, dedup=True)
        add(function, "x", limit=2, dedup=True)
        add(function, "p", limit=3, dedup=False)
        for of in ("s", "n"):
            for dedup in (False, True):
                add(function, of, limit=2, dedup=dedup)
                add(function, of, limit=3, dedup=dedup, dropnull=True)
    add(FUNCTION.EXP_DECAY_SUM, "n", half_life_us=SECOND // 2)
    add(FUNCTION.MAX, source.timestamp)
    add(FUNCTION.LAST_K, source.timestamp, limit=2, dedup=True)
    return made


@dataclass
class Case:
    """An aggregation over events or a table, both as a plan of an index and as a dataset of the engine."""

    name: str
    operator: Aggregate
    keyed: bool

    def __post_init__(self) -> None:
        self.source = TABLE if self.keyed else EVENTS
        out = derived(self.operator, sources=(self.source,))
        self.out = replace(out, index=IndexSpec(online=True, offline=False))
        self.plan: IndexPlan = plan_graph(Graph(datasets=(self.source, self.out))).indexes[0]
        self.columns = [f.name for f in self.out.fields]
        # The present, which closes windows that close by the clock: before all rows, unless a test moves it.
        self.now_us = -(10**12)

    def engine(self) -> LocalEngine:
        return LocalEngine([self.source, self.out], clock=lambda: self.now_us)


def case(
    name: str,
    windows: Sequence[Window],
    *,
    keyed: bool = False,
    along: bool = False,
    groupby: HoppingWindow | SessionWindow | None = None,
    bare: bool = False,
    by_clock: bool = False,
) -> Case:
    """Return a case whose aggregates are all functions over all windows."""
    source = TABLE if keyed else EVENTS
    specs = [] if bare else [s for n, w in enumerate(windows) for s in every_function(w, source, f"w{n}")]
    operator = Aggregate(
        of=Input(dataset=source.name),
        keys=("g",),
        aggregates=tuple(specs),
        window=groupby,
        along="due" if along else None,
        by_clock=by_clock,
    )
    return Case(name, operator, keyed)


@dataclass
class Job:
    """A job that writes the aggregate inputs of logged rows, as operators in `jvm/` do, with a growing revision."""

    case: Case
    sent: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    events: list[tuple[bytes, SourceChange]] = field(default_factory=list)
    offset: int = 0
    rev: int = 0

    def __post_init__(self) -> None:
        self._engine = self.case.engine()
        self._unapplied: list[SourceChange] = []
        self.codec = RecordCodec(self.case.plan.schema)

    @property
    def engine(self) -> LocalEngine:
        """The engine with all that was logged. Each call computes everything anew, so it gets changes in bulk."""
        if self._unapplied:
            self._engine.apply_changes(self.case.source.name, self._unapplied)
            self._unapplied = []
        return self._engine

    def log(self, change: SourceChange) -> list[Message]:
        """Log a change in the engine; return the records that follow from it."""
        self._unapplied.append(change)
        record_id = position_id(len(self.events), 0)
        self.events.append((record_id, change))
        self.rev += 1
        wanted = self._versions(str(change.row["k"])) if self.case.keyed else self._event(record_id, change)
        return [self._message(i, w) for i, w in wanted.items() if self.sent.get(i) != w]

    def _event(self, record_id: bytes, change: SourceChange) -> dict[bytes, tuple[Any, ...]]:
        return {record_id: (PUT, self._time(change), change)}

    def _versions(self, key: str) -> dict[bytes, tuple[Any, ...]]:
        """Return the aggregate inputs of all versions of a key."""
        versions = sorted(((c.time_us, i, c) for i, c in self.events if c.row["k"] == key), key=lambda v: v[:2])
        wanted: dict[bytes, tuple[Any, ...]] = {}
        for (_, record_id, change), after in zip(versions, [*versions[1:], None], strict=True):
            if change.delete:
                continue
            wanted[record_id + b"\x00"] = PUT, self._time(change), change
            if after is not None:
                wanted[record_id + b"\x01"] = DELETE, after[0], change
        return wanted

    def _time(self, change: SourceChange) -> int:
        due = change.row["due"]
        return due if self.case.operator.along is not None and isinstance(due, int) else change.time_us

    def _message(self, record_id: bytes, wanted: tuple[Any, ...]) -> Message:
        self.sent[record_id] = wanted
        op, time_us, change = wanted
        values = {**change.row, "t": change.time_us}
        row = [values[column.name] for column in self.case.plan.schema.columns]
        rev = None if not self.case.plan.revised else self.rev.to_bytes(4)
        value = self.codec.encode_value(op=op, time_us=time_us, ingested_us=1, record_id=record_id, rev=rev, row=row)
        self.offset += 1
        return self.codec.encode_key([change.row["g"]]), value, 0, self.offset - 1


def fresh_random() -> random.Random:
    """Return a generator with a new seed, which is printed: `CARAWAY_SEED` repeats it."""
    seed = random.randrange(1 << 32) if SEED is None else int(SEED)
    print(f"CARAWAY_SEED={seed}")  # noqa: T201 (pytest shows it if the test fails)
    return random.Random(seed)


def random_change(case_: Case, rng: random.Random) -> SourceChange:
    """Return a change near the edges of windows and tiles, for a table sometimes a delete."""
    time_us = rng.randrange(-10, 60) * SECOND // 2 + rng.choice([0, 0, 0, 1, -1, 400_000])
    nested = [rng.choice([None, 0.0, -0.0, 0.5, float("nan")]) for _ in range(rng.randrange(3))]
    row: dict[str, object] = {
        "g": rng.choice("ab"),
        "n": rng.choice([None, None, 0, 1, 2, 3, -7, 2**62]),
        "x": rng.choice([None, 0.0, -0.0, 0.1, -4.5, 1e16, -1e16, 7.25, 3.0]),
        "d": rng.choice([None, "0.00", "1.25", "-0.01", "99999.99"]),
        "s": rng.choice([None, None, "u", "v", "w", "x", "y"]),
        "l": nested,
        "p": [rng.randrange(3), rng.choice([None, "b"])],
        "due": time_us + rng.choice([0, 0, SECOND, -SECOND, 5 * SECOND]),
    }
    if case_.keyed:
        row["k"] = rng.choice("stuvw")
    return SourceChange(time_us=time_us, row=row, delete=case_.keyed and rng.random() < 0.2)
