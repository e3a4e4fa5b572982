"""The same questions to both engines, and where their answers differ."""

import math
import struct
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from caraway.engine_local import LocalEngine
from caraway.graph.operators import Aggregate, AggregateFunction
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import ContinuousWindow
from caraway.index.keys import SIGN
from caraway.topics.codec import VOID, RecordCodec
from caraway.topics.identity import position_id
from tests.parity.graphs import Case, oracle
from tests.parity.traffic import Part, Traffic

SECOND = 1_000_000
#: Lookups of one dataset at most, drawn from all keys at all times.
LOOKUPS = 1500
RELATIVE = 1e-12

Answer = tuple[object, ...]


@dataclass(frozen=True)
class Difference:
    """Where the engines differ: `local` and `streaming` are what they say to `question`."""

    part: Part
    dataset: str
    question: str
    local: object
    streaming: object


def differences(run: Traffic) -> list[Difference]:
    """Compare all derived datasets of a run that has settled."""
    found = []
    for part in run.parts:
        case = part.case
        with warnings.catch_warnings():
            # A sum that doesn't fit is null in both.
            warnings.simplefilter("ignore")
            engine = oracle(case, part.arrived())
            for spec in case.derived:
                found += _lookups(run, part, spec, engine) if spec.keys else _rows(run, part, spec, engine)
    return found


# Keyed datasets ------------------------------------------------------------------------------------------------------


def _lookups(run: Traffic, part: Part, spec: DatasetSpec, engine: LocalEngine) -> list[Difference]:
    plan = part.index(spec.name)
    codec = RecordCodec(plan.schema)
    asked = _questions(part.case, spec, engine)
    columns = compared_columns(spec)
    keys, times = [key for key, _ in asked], [time_us for _, time_us in asked]
    local, local_found = engine.lookup(spec.name, keys, times, columns)
    encoded = [codec.encode_key(key) or b"" for key in keys]
    streamed, streamed_found = run.reader.read(plan, encoded, times, columns)
    tolerant = _tolerant(spec)
    found = []
    for at, (key, time_us) in enumerate(asked):
        here = {"found": local_found[at], **{name: local[c][at] for c, name in enumerate(columns)}}
        there = {"found": streamed_found[at], **{name: streamed[c][at] for c, name in enumerate(columns)}}
        if any(not equal(here[name], there[name], tolerant=name in tolerant) for name in here):
            found.append(Difference(part, spec.name, f"key {key!r} at {time_us}", here, there))
    return found


def _questions(case: Case, spec: DatasetSpec, engine: LocalEngine) -> list[tuple[tuple[object, ...], int]]:
    """All keys that there ever are and one that isn't, at all times at which something may change, and just before."""
    rng = Random(f"{case.seed} {spec.name}")  # noqa: S311 (test data)
    rows = engine.rows(spec.name)
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


def _lengths(spec: DatasetSpec) -> set[int]:
    return {
        aggregate.window.length_us
        for aggregate in _aggregates(spec)
        if isinstance(aggregate.window, ContinuousWindow) and aggregate.window.length_us is not None
    }


def compared_columns(spec: DatasetSpec) -> list[str]:
    """Return the columns whose values are compared: see `EXCEPTIONS`."""
    aggregated = bool(_aggregates(spec))
    return [field.name for field in spec.fields if not field.key and not (aggregated and field.timestamp)]


def _aggregates(spec: DatasetSpec) -> tuple[Any, ...]:
    operator = spec.pipelines[0].operator
    return operator.aggregates if isinstance(operator, Aggregate) else ()


def _tolerant(spec: DatasetSpec) -> frozenset[str]:
    """Name the columns that agree to 1e-12 relative only."""
    return frozenset(a.into for a in _aggregates(spec) if a.function is AggregateFunction.EXP_DECAY_SUM)


# Keyless datasets ----------------------------------------------------------------------------------------------------


def _rows(run: Traffic, part: Part, spec: DatasetSpec, engine: LocalEngine) -> list[Difference]:
    """Compare all rows, in any order, with what holds on the topic."""
    topic = part.topic(spec.name)
    names = [column.name for column in topic.schema.columns]
    local = Counter(_hashable((row[spec.timestamp], *(row[name] for name in names))) for row in engine.rows(spec.name))
    streamed = Counter(_hashable((time_us, *row)) for time_us, row in _consolidated(run, part, spec.name))
    if local == streamed:
        return []
    question = f"rows ({spec.timestamp}, {', '.join(names)}) that the other one hasn't"
    return [Difference(part, spec.name, question, dict(local - streamed), dict(streamed - local))]


def _consolidated(run: Traffic, part: Part, dataset: str) -> list[tuple[int, list[object]]]:
    """Read what holds of a topic: of each id the greatest revision, of one revision a put before a void."""
    topic = part.topic(dataset)
    codec = RecordCodec(topic.schema)
    held: dict[bytes, tuple[tuple[bytes, bool], Any]] = {}
    for message in run.records(topic):
        value, offset, partition = message.value(), message.offset(), message.partition()
        assert value is not None
        assert offset is not None
        assert partition is not None
        record = codec.decode_value(value)
        identity = record.id or position_id(offset, partition)
        rank = (record.rev or b"", record.op != VOID)
        if identity not in held or rank >= held[identity][0]:
            held[identity] = rank, record
    return [(record.time, record.row) for _, record in held.values() if record.op != VOID]


# Values --------------------------------------------------------------------------------------------------------------


def equal(left: object, right: object, *, tolerant: bool = False) -> bool:
    """Tell whether two stored values are one, bit for bit; all NaN are one."""
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
