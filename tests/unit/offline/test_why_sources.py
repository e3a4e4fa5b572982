"""The way back from the records of a job to those of sources, and the versions that joins have met on it."""

# mypy: disable-error-code="attr-defined, arg-type, misc"

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Optional

import pytest

from caraway.client import arguments
from caraway.compute.query.catalog import Catalog
from caraway.compute.why.explaining import Question, explain
from caraway.compute.why.lookups import Listing
from caraway.compute.why.model import Lookup, Why
from caraway.compute.why.parts import Hidden, all_shown
from caraway.connectors import Webhook, source
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, erasure_of
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.datasets import Count, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.graph.plan.planner import plan_graph
from caraway.lib import inputs
from caraway.offline.narrowing import KeyRecords, NarrowReader
from caraway.offline.reader import OfflineReader
from caraway.offline.why.histories import TopicHistories
from caraway.offline.why.sources import GONE, SourceRecords
from tests.unit.offline.test_why import GivenMessages
from tests.unit.offline.topics import GivenTopics

__owner__ = "why@example.com"

SECOND = 1_000_000
MAC_KEYS = {"k": b"secret"}
web = Webhook(name="web")


@source(web.endpoint("Orders"), disorder="14d", cdc="append")
@dataset
class Orders:
    user: str
    product: str
    units: int
    at: datetime


@source(web.endpoint("Prices"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Prices:
    product: str = field(key=True)
    price: int
    at: datetime


@dataset(index=True)
class Spent:
    user: str = field(key=True, erase_key=True)
    total: int
    n: int
    at: datetime

    @pipeline
    @inputs(Orders, Prices)
    def make(cls: Any, orders: Any, prices: Any) -> Any:
        return (
            orders.join(prices, how="inner", on=["product"], within=("10s", "0s"))
            .assign(paid=(col("units") * col("price")).astype(int))
            .groupby("user")
            .aggregate(total=Sum(of="paid", window=Continuous("1m")), n=Count(window=Continuous("1m")))
        )


@featureset
class User:
    user: str
    total: int = F(Spent.total, default=0)
    price: Optional[int] = F(col("total") + 1)


GRAPH = arguments.gather([Orders, Prices, Spent], [User])
CATALOG, PLAN = Catalog("c", GRAPH), plan_graph(GRAPH)
TOPICS = {topic.dataset: topic for topic in PLAN.topics}
# The rows of orders with their times in seconds; the last one is out of the window at 70 s.
ORDERS = [("a", "x", 2, 15), ("a", "x", 3, 20), ("b", "x", 1, 21), ("a", "y", 9, 22), ("a", "x", 1, 5)]
PRICES = [("x", 10, 4), ("x", 11, 12), ("x", 12, 19), ("y", 7, 1)]


def message(dataset: str, row: list[object], second: int, offset: int, identity: bytes | None = None) -> Message:
    codec = RecordCodec(TOPICS[dataset].schema)
    names = [column.name for column in codec.schema.columns]
    keys = [row[names.index(key.name)] for key in codec.schema.keys]
    value = codec.encode_value(
        op=PUT, time_us=second * SECOND, ingested_us=(second + 1) * SECOND, row=row, record_id=identity
    )
    return codec.encode_key(keys), value, 0, offset


def messages() -> dict[str, list[Message]]:
    """Return what is on the topics after a job has joined the orders, as a job writes it."""
    joined: list[Message] = []
    for offset, (user, product, units, second) in enumerate(ORDERS):
        known = [price for name, price, since in PRICES if name == product and second - 10 <= since <= second]
        if known:
            columns = {"user": user, "paid": units * known[-1]}
            row = [columns.get(column.name) for column in TOPICS["Spent"].schema.columns]
            joined.append(message("Spent", row, second, len(joined), position_id(offset, 0)))
    return {
        TOPICS["Orders"].name: [message("Orders", list(o[:3]), o[3], n) for n, o in enumerate(ORDERS)],
        TOPICS["Prices"].name: [message("Prices", list(p[:2]), p[2], n) for n, p in enumerate(PRICES)],
        TOPICS["Spent"].name: joined,
    }


def explained(
    user: str,
    second: int,
    *,
    erased: ErasedKeys | None = None,
    hidden: Hidden = all_shown,
    listing: Listing | None = None,
) -> Why:
    given = messages()
    source, erased = GivenTopics(given), erased or ErasedKeys(dict)
    records = KeyRecords(source, PLAN.indexes, whole=True)
    sources = SourceRecords(PLAN, CATALOG.datasets, GivenMessages(given), erased, hidden)
    histories = TopicHistories(records, PLAN, CATALOG.datasets, sources, erased)
    reader = NarrowReader(records, lambda found: OfflineReader(found, PLAN.indexes, PLAN.topics, erased=erased))
    question = Question(
        feature="User.price", inputs={"User.user": user}, at_us=second * SECOND, listing=listing or Listing()
    )
    return explain(CATALOG, reader, histories, question, hidden=hidden)


def lookup_of(why: Why) -> Lookup:
    (found,) = [lookup for step in why.steps for lookup in step.lookups]
    return found


def test_each_part_has_its_order_and_the_price_that_it_met() -> None:
    why = explained("a", 70)
    assert (why.value, why.check.same) == (2 * 11 + 3 * 12 + 1, True)
    found = lookup_of(why)
    assert found.parts is not None
    assert [(item.row or {})["paid"] for item in found.parts.items] == [22, 36]
    for item, number, price, since in zip(found.parts.items, (0, 1), (11, 12), (12, 19), strict=True):
        assert item.source is not None
        assert item.source.dataset == "Orders"
        assert item.source.position is not None
        assert (item.source.position.topic, item.source.position.offset) == (TOPICS["Orders"].name, number)
        assert (item.source.row or {})["units"] == ORDERS[number][2]
        (met,) = item.source.joins
        assert (met.row or {})["price"] == price
        assert met.since is not None
        assert met.since.endswith(f"00:00:{since:02}Z")
        assert [step.split()[0] for step in item.source.steps] == ["inner", "assign"]
    (total,) = found.windows
    assert (total.count, total.least, total.greatest) == (2, 22, 36)
    # The order of 5 s has left the window: with the rest of its second it counted until 65 s and a second.
    assert total.left is not None
    assert total.left.row is not None
    assert total.left.row["paid"] == 10
    # The order of product y has met no price within ten seconds, so it isn't among the parts.
    assert found.why.startswith("2 of 3 rows")


def test_edges_of_a_window() -> None:
    assert explained("a", 65).value == 10 + 22 + 36 + 1
    assert explained("a", 66).value == 22 + 36 + 1
    (total,) = lookup_of(explained("a", 10)).windows
    assert total.next is not None
    assert total.next.event_time.endswith("00:00:15Z")


def test_pages_and_samples() -> None:
    page = lookup_of(explained("a", 65, listing=Listing(offset=1, limit=1))).parts
    assert page is not None
    assert (page.total, page.offset, len(page.items), page.sampled) == (3, 1, 1, False)
    assert explained("a", 65, listing=Listing(limit=0)).check.same is True
    sample = lookup_of(explained("a", 65, listing=Listing(limit=2, sample=True))).parts
    assert sample is not None
    assert (len(sample.items), sample.sampled) == (2, True)


@pytest.mark.parametrize("refused", ["Orders", "Orders.product", "Prices.price"])
def test_parts_of_hidden_datasets(refused: str) -> None:
    """A caller who may read a sum but not what was added sees that something is hidden, and none of it."""

    def hidden(dataset: str, field: str | None) -> str | None:
        names = (
            {dataset, f"{dataset}.{field}"} if field else {dataset, *(f"{dataset}.{name}" for name in FIELDS[dataset])}
        )
        return f"you may not read {refused}" if refused in names else None

    why = explained("a", 65, hidden=hidden)
    found = lookup_of(why)
    assert (why.value, why.check.same, found.hidden) == (69, True, f"you may not read {refused}")
    assert found.parts is None
    window = found.windows[0]
    assert (window.count, window.values, window.left, window.least) == (None, None, None, None)
    assert " rows" not in str(why)


FIELDS: Mapping[str, list[str]] = {spec.name: [f.name for f in spec.fields] for spec in GRAPH.datasets}


def test_an_erased_key_has_nothing() -> None:
    index = next(index for index in PLAN.indexes if index.dataset == "Spent")
    erased = ErasedKeys(lambda: MAC_KEYS)
    erased.add(index.topic, [erasure_of(index.topic, index.schema.keys, ["a"], "k", MAC_KEYS["k"])])
    why = explained("a", 65, erased=erased)
    assert (why.value, lookup_of(why).found) == (1, False)
    assert "erased" in lookup_of(why).why
    assert (lookup_of(why).parts, lookup_of(why).windows) == (None, ())
    assert explained("b", 65, erased=erased).value == 13


def test_an_erased_source_record_isnt_shown() -> None:
    topic = TOPICS["Orders"]
    (product,) = [column for column in topic.schema.columns if column.name == "product"]
    erased = ErasedKeys(lambda: MAC_KEYS)
    erased.add(topic.name, [erasure_of(topic.name, [product], ["x"], "k", MAC_KEYS["k"])])
    why = explained("b", 65, erased=erased)
    parts = lookup_of(why).parts
    assert parts is not None
    (item,) = parts.items
    assert item.source is not None
    assert (why.value, item.source.row, item.source.hidden) == (13, None, GONE)
