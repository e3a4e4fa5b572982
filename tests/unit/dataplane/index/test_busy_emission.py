"""The cost of one more aggregate input in a group with many: in order, late, or retracted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.emission import Emission
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.dtypes.types import DATETIME
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema, TopicKind, TopicPlan
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.windows import HoppingWindow, SessionWindow
from tests.unit.dataplane.index.counting import CountingStore
from tests.unit.dataplane.index.naive import KEY, SECOND, Sent, aggregate, index_plan

MANY = 5000
# The most entries that one more aggregate input may touch. A row is a read of some ten tiles and, at each of the two
# edges of its window, of at most 64 aggregate inputs.
FEW = 500
SPECS = (aggregate(AggregateFunction.COUNT, None, None), aggregate(AggregateFunction.SUM, "x", None))


def emitting(window: HoppingWindow | None, groupby: SessionWindow | None) -> IndexPlan:
    specs = tuple(replace(spec, window=window) for spec in SPECS)
    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=specs)
    keys = (KEY, Column(name=WINDOW_KEY, dtype=DATETIME)) if groupby else (KEY,)
    columns = (*keys, *(Column(name=spec.into, dtype=spec.dtype) for spec in specs))
    schema = RecordSchema(keys=keys, columns=columns, timestamp="t", fingerprint=7)
    rows = TopicPlan(dataset="D", name="rows", kind=TopicKind.VERSIONS, schema=schema, disorder_us=0, revised=True)
    return replace(plan, window=groupby, fields=(*columns, plan.fields[-1]), emits=rows)


PLANS = {
    "buckets": emitting(HoppingWindow(length_us=600 * SECOND, stride_us=600 * SECOND), None),
    "forever": emitting(HoppingWindow(length_us=None, stride_us=600 * SECOND), None),
    "sessions": emitting(None, SessionWindow(gap_us=10 * SECOND)),
}


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.slow) for n in ("buckets", "forever")), "sessions"]
)
def test_a_further_aggregate_input_costs_what_it_changes(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]
    assert plan.emits is not None
    with CountingStore(tmp_path / "index") as store:
        writer, emission = IndexWriter(store), Emission(plan, plan.emits, store)
        sent: list[tuple[bytes, bytes]] = []

        def apply(*records: Sent) -> int:
            """Apply records and emit; return how many records were emitted."""
            store.counts.clear()
            before = len(sent)
            assert not writer.apply(plan, [record.message(0) for record in records]).refused
            emission.run(lambda _, letters: sent.extend(letters), {})
            return len(sent) - before

        def event(number: int, at: float, rev: int = 1, op: int = PUT) -> Sent:
            return Sent("a", position_id(number, 0), bytes([rev]), op, round(at * SECOND), (1, 1.0, None))

        apply(*(event(n, n) for n in range(MANY)))
        further: Sequence[Sent] = [
            event(MANY, MANY),
            event(MANY + 1, MANY - 700.5),
            event(MANY - 900, MANY - 900, 2, RETRACT),
            event(MANY + 2, MANY + 20),
        ]
        for record in further:
            # At most two rows change: that of the session before it grew and the one after, or those of one or two
            # buckets.
            assert apply(record) <= 2
            assert store.touched < FEW
