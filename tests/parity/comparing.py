"""The same questions to both engines, and where their answers differ."""

import math
import struct
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from caraway.compute.reference.engine import LocalEngine
from caraway.dataplane.index.storage.keys import SIGN
from caraway.dataplane.topics.codec import RETRACT, RecordCodec
from caraway.dtypes.types import INT
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate
from caraway.graph.plan.model import IndexPlan, RecordSchema
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import ContinuousWindow
from caraway.offline.spark.dividing import RECORDS_BYTES
from tests.messages import positions_of
from tests.parity.graphs import derived, oracle
from tests.parity.traffic import Part, Traffic

SECOND = 1_000_000
#: Lookups of one dataset at most, drawn from all keys at all times.
LOOKUPS = 1500
RELATIVE = 1e-12

Key = tuple[object, ...]
Answers = list[dict[str, object]]

# The records of a division that fit into memory when it is divided by time as well: some dozens.
FEW_BYTES = 4_000


@dataclass(frozen=True)
class Difference:
    """A difference between the engines: `local` and `streaming` are their answers to `question`.

    Attributes:
        asked: Key and time, if it is a lookup.
        row: For a dataset without keys, the row that one of the engines has more often.
    """

    part: Part
    dataset: str
    question: str
    local: Any
    streaming: Any
    asked: tuple[Key, int] | None = None
    row: Any = None


@dataclass(frozen=True)
class Expected:
    """The result of the in-process engine: answers to questions, or, without keys, how often each row is there."""

    part: Part
    spec: DatasetSpec
    asked: Sequence[tuple[Key, int]] = ()
    answers: Sequence[Mapping[str, object]] = ()
    rows: Mapping[Any, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return how many answers or rows are compared."""
        return len(self.asked) + len(self.rows)


def differences(traffic: Traffic) -> list[Difference]:
    """Compare all derived datasets, once everything has settled."""
    return [difference for expected in expectations(traffic) for difference in differing(traffic, expected)]


def expectations(traffic: Traffic) -> list[Expected]:
    """Compute what all derived datasets must hold, once everything was sent."""
    found = []
    for part in traffic.parts:
        with warnings.catch_warnings():
            # A sum that doesn't fit is null in both.
            warnings.simplefilter("ignore")
            engine = oracle(part.case, part.arrived())
            found += [
                _answers(part, spec, engine) if spec.keys else _rows(part, spec, engine) for spec in part.case.derived
            ]
    return found


def differing(traffic: Traffic, expected: Expected) -> list[Difference]:
    """Compare what a dataset holds now with what it must hold."""
    return _differing_answers(traffic, expected) if expected.spec.keys else _differing_rows(traffic, expected)


# Keyed datasets ------------------------------------------------------------------------------------------------------


def _answers(part: Part, spec: DatasetSpec, engine: LocalEngine) -> Expected:
    asked = _questions(part, spec, engine)
    return Expected(part, spec, asked=asked, answers=answered(spec, asked, engine))


def answered(spec: DatasetSpec, asked: Sequence[tuple[Key, int]], engine: LocalEngine) -> Answers:
    """Ask the in-process engine."""
    columns = compared_columns(spec)
    values, found = engine.lookup(spec.name, [key for key, _ in asked], [at_us for _, at_us in asked], columns)
    return by_question(columns, values, found)


def by_question(columns: Sequence[str], values: Sequence[Sequence[object]], found: Sequence[bool]) -> Answers:
    """Return what was read in columns as an answer to each question."""
    return [
        {"found": found[at], **{name: values[position][at] for position, name in enumerate(columns)}}
        for at in range(len(found))
    ]


def _differing_answers(traffic: Traffic, expected: Expected) -> list[Difference]:
    part, spec = expected.part, expected.spec
    plan = part.index(spec.name)
    encoded = [encoded_key(plan, dict(zip(spec.keys, key, strict=True))) for key, _ in expected.asked]
    columns = compared_columns(spec)
    answers = by_question(columns, *traffic.index.read(plan, encoded, [at_us for _, at_us in expected.asked], columns))
    if traffic.archived is not None:
        whole = traffic.archived.read(part, spec.name, expected.asked, columns)
        divided, by_time = (
            traffic.archived.read_divided(part, spec.name, expected.asked, columns, limit)
            for limit in (RECORDS_BYTES, FEW_BYTES)
        )
        for kind, rows in (("offline", whole), ("divided", divided or whole), ("divided by time", by_time or whole)):
            for asked, online, past in zip(expected.asked, answers, by_question(columns, *rows), strict=True):
                apart = columns_apart(spec, online, past)
                assert not apart, (
                    f"seed {part.case.seed}, {spec.name}, {asked}: {online} online, {past} {kind} ({apart})"
                )
    return [
        Difference(part, spec.name, f"key {key!r} at {at_us}", local, streaming, asked=(key, at_us))
        for (key, at_us), local, streaming in zip(expected.asked, expected.answers, answers, strict=True)
        if columns_apart(spec, local, streaming)
    ]


def columns_apart(spec: DatasetSpec, one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    """Return the columns in which two answers to one question differ."""
    tolerant = tolerant_columns(spec)
    return {name for name in one if not equal(one[name], other[name], tolerant=name in tolerant)}


def encoded_key(plan: IndexPlan, key: Mapping[str, object]) -> bytes:
    """Return the bytes of a key, with the window if that is a part of it."""
    schema = RecordSchema(keys=plan.keys, columns=(), timestamp=plan.schema.timestamp, fingerprint=0)
    return RecordCodec(schema).encode_key([key[column.name] for column in plan.keys]) or b""


def _questions(part: Part, spec: DatasetSpec, engine: LocalEngine) -> list[tuple[Key, int]]:
    """Ask for all keys that there ever are, at all times at which something may change, and just before."""
    case = part.case
    rng = Random(f"{case.seed} {spec.name}")
    rows = _history(part, spec, engine)
    keys = {_hashable(key): key for row in rows for key in [tuple(row[name] for name in spec.keys)]}
    times = {arrival.time_us for arrived in case.traces.values() for arrival in arrived}
    times |= {row[spec.timestamp] for row in rows if isinstance(row[spec.timestamp], int)}  # type: ignore[misc]
    for length_us in _lengths(spec):
        times |= {time_us + length_us + SECOND for time_us in times}
    times = {min(max(t, -SIGN), SIGN - 1) for time_us in times for t in (time_us, time_us - 1)}
    asked = [(key, time_us) for key in keys.values() for time_us in sorted(times)]
    asked = asked if len(asked) <= LOOKUPS else rng.sample(asked, LOOKUPS)
    now = time.time_ns() // 1000
    return [*asked, *((key, t) for key in keys.values() for t in (now, max(times), min(times)))]


def _history(part: Part, spec: DatasetSpec, engine: LocalEngine) -> list[dict[str, object]]:
    """Return rows that have all keys and times of a dataset.

    Those of an aggregate over continuous windows, each computed from all that is in its windows, would take minutes for
    some thousand events: a count of all time has the same keys, and `_lengths` tells when rows leave.
    """
    operator = spec.pipelines[0].operator
    # An aggregate whose groupby has a window may have no columns at all.
    if not isinstance(operator, Aggregate) or operator.window is not None:
        return engine.rows(spec.name)
    if not all(isinstance(aggregate.window, ContinuousWindow) for aggregate in operator.aggregates):
        return engine.rows(spec.name)
    window = ContinuousWindow(length_us=None)
    count = AggregateSpec(
        function=AggregateFunction.COUNT, into="count", of=None, window=window, default=None, dtype=INT
    )
    specs = {other.name: other for other in part.case.datasets}
    counted = derived(replace(operator, aggregates=(count,)), spec.name, specs)
    only = replace(part.case, datasets=tuple((specs | {spec.name: counted}).values()))
    return oracle(only, part.arrived()).rows(spec.name)


def _lengths(spec: DatasetSpec) -> set[int]:
    return {
        aggregate.window.length_us
        for aggregate in _aggregates(spec)
        if isinstance(aggregate.window, ContinuousWindow) and aggregate.window.length_us is not None
    }


def compared_columns(spec: DatasetSpec) -> list[str]:
    """Return the columns whose values are compared: keys are asked for, and an aggregate's time stamp is left out."""
    aggregated = bool(_aggregates(spec))
    return [field.name for field in spec.fields if not field.key and not (aggregated and field.timestamp)]


def _aggregates(spec: DatasetSpec) -> tuple[Any, ...]:
    operator = spec.pipelines[0].operator if spec.pipelines else None
    return operator.aggregates if isinstance(operator, Aggregate) else ()


def tolerant_columns(spec: DatasetSpec) -> frozenset[str]:
    """Return the columns that agree to 1e-12 relative only."""
    return frozenset(a.into for a in _aggregates(spec) if a.function is AggregateFunction.EXP_DECAY_SUM)


# Keyless datasets ----------------------------------------------------------------------------------------------------


def _rows(part: Part, spec: DatasetSpec, engine: LocalEngine) -> Expected:
    return Expected(part, spec, rows=rows_of(part, spec, engine))


def rows_of(part: Part, spec: DatasetSpec, engine: LocalEngine) -> Counter[Any]:
    """Count all rows, in any order: values in the order of the topic's columns, the time stamp first."""
    names = [spec.timestamp, *(column.name for column in part.topic(spec.name).schema.columns)]
    return Counter(_hashable([row[name] for name in names]) for row in engine.rows(spec.name))


def _differing_rows(traffic: Traffic, expected: Expected) -> list[Difference]:
    """Compare with the rows that hold on the topic."""
    part, spec, local = expected.part, expected.spec, expected.rows
    held = Counter(_hashable([time_us, *row]) for time_us, row in _consolidated(traffic, part, spec.name))
    counts = {row: (local.get(row, 0), held[row]) for row in [*local, *held]}
    return [
        Difference(part, spec.name, f"how often there is {row} (time stamp first)", here, there, row=row)
        for row, (here, there) in counts.items()
        if here != there
    ]


def _consolidated(traffic: Traffic, part: Part, dataset: str) -> list[tuple[int, list[object]]]:
    """Read the rows that hold on a topic: of each id the greatest revision, at one revision the put."""
    topic = part.topic(dataset)
    codec = RecordCodec(topic.schema)
    held: dict[bytes, tuple[tuple[bytes, bool], Any]] = {}
    for message in traffic.records(topic):
        for position, value in positions_of(message):
            record = codec.decode_value(value)
            identity = record.id or position
            rank = (record.rev or b"", record.op != RETRACT)
            if identity not in held or rank >= held[identity][0]:
                held[identity] = rank, record
    return [(record.time, record.row) for _, record in held.values() if record.op != RETRACT]


# Values --------------------------------------------------------------------------------------------------------------


def equal(left: object, right: object, *, tolerant: bool = False) -> bool:
    """Return whether two stored values are equal, bit for bit; all NaN are equal."""
    if tolerant and isinstance(left, float) and isinstance(right, float) and math.isfinite(left):
        return math.isclose(left, right, rel_tol=RELATIVE, abs_tol=1e-300)
    same: bool = _hashable(left) == _hashable(right)
    return same


def _hashable(value: object) -> Any:
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else struct.pack(">d", value))
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, Mapping):
        return ("map", *sorted((key, _hashable(item)) for key, item in value.items()))
    return (type(value).__name__, value)
