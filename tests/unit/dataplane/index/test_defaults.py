"""The values that the authoring API defines for an empty window and for a key never seen, read from the index."""

# Type checkers see classes where decorators return datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, union-attr"
from dataclasses import replace
from pathlib import Path

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.datasets import (
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    Variance,
)
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph, IndexSpec
from tests.unit.compute.reference.building import derived
from tests.unit.datasets.shop import HOUR, Orders

AGGREGATES = {
    "n": (Count(window=HOUR), 0, None),
    "shops": (Count(of="shop", unique=True, approx=True, window=HOUR), 0, None),
    "named": (Count(of="shop", dropnull=True, window=HOUR), 0, None),
    "spent": (Sum(of="cost", window=HOUR), "0.00", None),
    "counted": (Sum(of="count", window=HOUR), 0, None),
    "mean": (Average(of="cost", window=HOUR), 0.0, 0.0),
    "none": (Average(of="price", default=None, window=HOUR), None, None),
    "variance": (Variance(of="cost", default=None, window=HOUR), None, None),
    "spread": (Stddev(of="count", window=HOUR), -1.0, -1.0),
    "least": (Min(of="cost", default=7, window=HOUR), "7.00", "7.00"),
    "most": (Max(of="stars", default=1, window=HOUR), 1, 1),
    "last_at": (Max(of="at", window=HOUR), None, None),
    "median": (Quantile(of="price", p=0.5, default=2.5, approx=True, window=HOUR), 2.5, 2.5),
    "seen": (Distinct(of="shop", unordered=True, window=HOUR), [], None),
    "last": (LastK(of="size", limit=2, dedup=True, window=HOUR), [], None),
    "first": (FirstK(of="shop", limit=2, dedup=False, dropnull=True, window=HOUR), [], None),
    "decayed": (ExpDecaySum(of="price", half_life="1h", window=HOUR), 0.0, None),
}


def test_an_empty_window_and_a_new_key_read_as_the_api_says(tmp_path: Path) -> None:
    node = Orders.groupby("user").aggregate(**{name: made for name, (made, _, _) in AGGREGATES.items()})
    source = Orders.to_spec()
    out = derived(node.node_operator, sources=(source,))
    indexed = replace(out, index=IndexSpec(online=True, offline=False))
    plan = plan_graph(Graph(datasets=(source, indexed))).indexes[0]
    codec = RecordCodec(plan.schema)
    values = {"user": 1, "shop": "a", "price": 1.0, "count": 2, "stars": 3, "size": "s", "cost": "1.00"}
    row = [values[column.name] for column in plan.schema.columns]
    value = codec.encode_value(op=PUT, time_us=0, ingested_us=0, record_id=position_id(0, 0), row=row)
    keys = [codec.encode_key([user]) or b"" for user in (1, 2)]
    with IndexStore(tmp_path / "index") as store:
        IndexWriter(store).apply(plan, [(keys[0], value, 0, 0)])
        columns, found = IndexReader(store).read(plan, keys, 10**15, list(AGGREGATES))
    assert found == [True, False]
    assert dict(zip(AGGREGATES, columns, strict=True)) == {
        name: [empty, unseen] for name, (_, empty, unseen) in AGGREGATES.items()
    }
