"""The index as a dictionary: every answer computed from all records, by the functions of the in-process engine."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from caraway.compute.reference.aggregates.functions import Compute, Sample, compiled
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import FLOAT, INT, STRING, DecimalType, optional
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema
from caraway.graph.windows import ContinuousWindow

SECOND = 1_000_000
# Levels of 65 ms, 262 ms, 1 s and so on; a tile splits at the fourth aggregate input, so a few events make a deep
# pyramid.
SMALL = Geometry(base_bits=16, fan_bits=2, split=3)

KEY = Column(name="k", dtype=STRING)
COLUMNS = {
    name: Column(name=name, dtype=optional(dtype)) for name, dtype in (("n", INT), ("x", FLOAT), ("d", DecimalType(2)))
}
#: The default of -1 as an extreme of each column is stored.
DEFAULTS: dict[str, object] = {"n": -1, "x": -1.0, "d": "-1.00"}
SCHEMA = RecordSchema(keys=(KEY,), columns=(KEY, *COLUMNS.values()), timestamp="t", fingerprint=0xCAFE)
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
        row = {"k": key, "t": last.time} | dict(zip(COLUMNS, last.row, strict=True))
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


@cache
def _function(spec: AggregateSpec) -> Compute:
    return compiled(replace(spec, default=None), None if spec.of is None else COLUMNS[spec.of].dtype)


def _value(spec: AggregateSpec, alive: list[Sent], at_us: int) -> object:
    rows = [s.row for s in alive if spec.window_us is None or at_us - spec.window_us - SECOND < s.time]
    values = [None if spec.of is None or row is None else row[list(COLUMNS).index(spec.of)] for row in rows]
    with warnings.catch_warnings():
        # A sum that doesn't fit is null in the index, too; the function warns of it.
        warnings.simplefilter("ignore")
        found = _function(spec)([Sample(at_us, value) for value in values], at_us)
    if found is not None or spec.default is None or spec.of is None:
        return found
    is_extreme = spec.function in {AggregateFunction.MIN, AggregateFunction.MAX}
    return DEFAULTS[spec.of] if is_extreme else DEFAULTS["x"]
