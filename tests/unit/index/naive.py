"""The index as a dictionary: every answer computed from all records, with fractions and `statistics`."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from caraway.dtypes.types import FLOAT, INT, STRING, DecimalType, optional
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.windows import ContinuousWindow
from caraway.index.storage.geometry import Geometry
from caraway.plan.model import Column, IndexKind, IndexPlan, RecordSchema
from caraway.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.topics.reader import Message

SECOND = 1_000_000
# Levels of 65 ms, 262 ms, 1 s and so on; a tile splits at the fourth aggregate input, so a few events make a deep
# pyramid.
SMALL = Geometry(base_bits=16, fan_bits=2, split=3)

KEY = Column(name="k", dtype=STRING)
SCHEMA = RecordSchema(
    keys=(KEY,),
    columns=(
        KEY,
        Column(name="n", dtype=optional(INT)),
        Column(name="x", dtype=optional(FLOAT)),
        Column(name="d", dtype=optional(DecimalType(2))),
    ),
    timestamp="t",
    fingerprint=0xCAFE,
)
CODEC = RecordCodec(SCHEMA)
WINDOWS = (None, 2 * SECOND, 9 * SECOND)


def aggregate(
    function: AggregateFunction, of: str | None, window_us: int | None, default: float | None = None
) -> AggregateSpec:
    name = f"{function.value}_{of}_{window_us}"
    return AggregateSpec(
        function=function, into=name, of=of, window=ContinuousWindow(length_us=window_us), default=default, dtype=FLOAT
    )


ALL_AGGREGATES = tuple(
    aggregate(function, of, window_us, None if function in {"count", "sum"} else -1)
    for window_us in WINDOWS
    for function, columns in (
        (AggregateFunction.COUNT, (None,)),
        (AggregateFunction.SUM, ("n", "x", "d")),
        (AggregateFunction.AVERAGE, ("n", "x", "d")),
        (AggregateFunction.STDDEV, ("n", "x", "d")),
        (AggregateFunction.VARIANCE, ("n", "x", "d")),
        (AggregateFunction.MIN, ("n", "x", "d")),
        (AggregateFunction.MAX, ("n", "x", "d")),
    )
    for of in columns
)


def index_plan(
    kind: IndexKind, *, revised: bool, aggregates: tuple[AggregateSpec, ...] = (), asset: bytes = b"asset--1"
) -> IndexPlan:
    names = tuple(Column(name=a.into, dtype=a.dtype) for a in aggregates) or SCHEMA.columns[1:]
    return IndexPlan(
        dataset="D",
        asset=asset,
        kind=kind,
        topic="topic",
        schema=SCHEMA,
        revised=revised,
        aggregates=aggregates,
        fields=(KEY, *names, Column(name="t", dtype=INT)),
    )


@dataclass
class Sent:
    """A record as it was sent, before encoding."""

    key: str
    record_id: bytes
    rev: bytes
    op: int
    time: int
    row: tuple[Any, ...] | None

    def message(self, offset: int) -> Message:
        row = None if self.row is None else (self.key, *self.row)
        value = CODEC.encode_value(
            op=self.op, time_us=self.time, ingested_us=1, record_id=self.record_id, rev=self.rev or None, row=row
        )
        return CODEC.encode_key([self.key]), value, 0, offset


@dataclass
class NaiveIndex:
    """An index that keeps the newest revision of each id and goes through all of them at each read."""

    plan: IndexPlan
    newest: dict[bytes, Sent] = field(default_factory=dict)

    def apply(self, sent: Sent) -> None:
        known = self.newest.get(sent.record_id)
        if known is None or sent.rev > known.rev or (sent.rev == known.rev and known.op == RETRACT):
            self.newest[sent.record_id] = sent

    def read(self, key: str, at_us: int, columns: Sequence[str]) -> tuple[list[object], bool]:
        if self.plan.kind is IndexKind.VERSIONS:
            return self._version(key, at_us, columns)
        return self._aggregates(key, at_us, columns)

    def _version(self, key: str, at_us: int, columns: Sequence[str]) -> tuple[list[object], bool]:
        versions = [s for s in self.newest.values() if s.key == key and s.op != RETRACT and s.time <= at_us]
        last = max(versions, key=lambda s: (s.time, s.record_id), default=None)
        if last is None or last.op == DELETE or last.row is None:
            return [key if name == "k" else None for name in columns], False
        row = {"k": key, "t": last.time} | dict(zip(("n", "x", "d"), last.row, strict=True))
        return [row[name] for name in columns], True

    def _aggregates(self, key: str, at_us: int, columns: Sequence[str]) -> tuple[list[object], bool]:
        times: list[int] = []
        alive: list[Sent] = []
        windows = {spec.window_us for spec in self.plan.aggregates}
        for record_id, put in self.newest.items():
            if put.key != key or put.op != PUT:
                continue
            end = self.newest.get(record_id[:-1] + b"\x01") if len(record_id) > 12 else None
            end_us = end.time if end is not None and end.op == DELETE else math.inf
            if put.time <= at_us < end_us:
                alive.append(put)
            if put.time < end_us:
                leaves = [end_us if d is None else min(end_us, put.time + d + SECOND) for d in windows]
                times += [int(time) for time in (put.time, *leaves) if time <= at_us]
        specs = {spec.into: spec for spec in self.plan.aggregates}
        row: list[object] = []
        for name in columns:
            if name == "k":
                row.append(key)
            elif name == "t":
                row.append(max(times, default=None))
            else:
                row.append(_value(specs[name], alive, at_us) if times else _unseen(specs[name]))
        return row, bool(times)


def _unseen(spec: AggregateSpec) -> object:
    return None if spec.function in {"count", "sum"} else _value(spec, [], 0)


def _value(spec: AggregateSpec, alive: list[Sent], at_us: int) -> object:
    rows = [s.row for s in alive if spec.window_us is None or at_us - spec.window_us - SECOND < s.time]
    if spec.function == "count":
        return len(rows)
    values = [
        value
        for row in rows
        if row is not None and (value := dict(zip(("n", "x", "d"), row, strict=True))[str(spec.of)]) is not None
    ]
    if spec.of == "d":
        return _decimal_value(spec, [Fraction(value) for value in values])
    if spec.of == "n":
        return _int_value(spec, values)
    return _float_value(spec, values)


def _decimal_value(spec: AggregateSpec, values: list[Fraction]) -> object:
    if spec.function == "sum":
        return _text(sum(values, Fraction()))
    if spec.function in {"min", "max"}:
        return _text((min if spec.function == "min" else max)(values, default=Fraction(-1)))
    return _moment(spec, values)


def _text(value: Fraction) -> str:
    cents = int(value * 100)
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def _int_value(spec: AggregateSpec, values: list[int]) -> object:
    if spec.function == "sum":
        total = sum(values)
        return total if -(2**63) <= total < 2**63 else None
    if spec.function in {"min", "max"}:
        return (min if spec.function == "min" else max)(values, default=-1)
    return _moment(spec, [Fraction(value) for value in values])


def _float_value(spec: AggregateSpec, values: list[float]) -> object:
    if spec.function == "sum":
        return _float_sum(values)
    if spec.function in {"min", "max"}:
        if not values:
            return -1.0
        ordered = sorted(values, key=lambda v: (math.isnan(v), v))
        return ordered[0 if spec.function == "min" else -1] + 0.0
    if any(not math.isfinite(value) for value in values):
        return math.nan if spec.function in {"stddev", "variance"} else _float_sum(values)
    return _moment(spec, [Fraction(value) for value in values])


def _float_sum(values: list[float]) -> float:
    special = [value for value in values if not math.isfinite(value)]
    return sum(special) if special else float(sum(map(Fraction, values), Fraction()))


def _moment(spec: AggregateSpec, values: list[Fraction]) -> float:
    if not values:
        return -1.0
    if spec.function == "average":
        return float(sum(values, Fraction()) / len(values))
    if spec.function == "stddev":
        return float(statistics.pstdev(values))
    try:
        return float(statistics.pvariance(values))
    except OverflowError:
        return math.inf
