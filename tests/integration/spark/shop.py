"""A small shop with topics, jobs and random traffic, and the output of its jobs by plain Python."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from caraway.dtypes.types import FLOAT, INT, STRING, DataType, optional
from caraway.expr.nodes import Binary, BinaryOp, FillNull, Literal, Ref
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate, Assign, AssignedColumn, Filter, Input, Join, JoinKind, Operator, Rename
from caraway.graph.plan.model import Column, JobMode, JobPlan, RecordSchema, TopicKind, TopicPlan
from caraway.graph.windows import ContinuousWindow
from tests.integration.spark.broker import Sent

HORIZON_US = 10**12
LOW_US, HIGH_US = 400, 30

ORDER_COLUMNS: dict[str, DataType] = {"sku": STRING, "quantity": INT}
PRICE_COLUMNS: dict[str, DataType] = {"sku": STRING, "shop": STRING, "price": FLOAT}


def topic(
    name: str, kind: TopicKind, keys: Sequence[str], columns: dict[str, DataType], *, revised: bool = False
) -> TopicPlan:
    ordered = tuple(Column(name=c, dtype=t) for c, t in columns.items())
    schema = RecordSchema(keys=ordered[: len(keys)], columns=ordered, timestamp="at", fingerprint=hash_of(name))
    return TopicPlan(dataset=name, name=name, kind=kind, schema=schema, disorder_us=HORIZON_US, revised=revised)


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode()[-4:].rjust(4, b"\1"))


def job(name: str, operator: Operator, inputs: Sequence[TopicPlan], output: TopicPlan) -> JobPlan:
    return JobPlan(
        job_id=name,
        dataset=output.dataset,
        pipeline="pipeline",
        operator=operator,
        inputs=tuple(inputs),
        output=output,
        mode=JobMode.REAL_TIME,
        mode_reason="test",
        horizon_us=HORIZON_US,
    )


def _sum(of: str) -> AggregateSpec:
    return AggregateSpec(
        function=AggregateFunction.SUM,
        into="total",
        of=of,
        window=ContinuousWindow(length_us=None),
        default=0.0,
        dtype=FLOAT,
    )


def _compare(op: BinaryOp, column: str, value: float, dtype: DataType) -> Binary:
    return Binary(op=op, left=Ref(name=column), right=Literal(value=value, dtype=dtype))


@dataclass(frozen=True)
class Shop:
    """The topics and jobs of a shop, whose names end in `suffix`."""

    suffix: str

    @property
    def orders(self) -> TopicPlan:
        return topic(f"orders{self.suffix}", TopicKind.EVENTS, [], ORDER_COLUMNS)

    @property
    def prices(self) -> TopicPlan:
        return topic(f"prices{self.suffix}", TopicKind.VERSIONS, ["sku"], PRICE_COLUMNS)

    def doubled(self) -> JobPlan:
        output = topic(f"doubled{self.suffix}", TopicKind.AGGREGATE_INPUTS, ["sku"], {"sku": STRING, "twice": INT})
        positive = Filter(of=Input(dataset=self.orders.dataset), predicate=_compare(BinaryOp.GT, "quantity", 0, INT))
        twice = AssignedColumn(name="twice", dtype=INT, expr=_compare(BinaryOp.MUL, "quantity", 2, INT))
        operator = Aggregate(of=Assign(of=positive, columns=(twice,)), keys=("sku",), aggregates=(_sum("twice"),))
        return job(f"doubled{self.suffix}", operator, [self.orders], output)

    def priced(self, how: JoinKind) -> JobPlan:
        """Join the price at the time of the order, drop cheap ones, and add up by shop."""
        columns: dict[str, DataType] = {"shop": optional(STRING), "price": optional(FLOAT), "quantity": INT}
        name = f"{how}{self.suffix}"
        output = topic(name, TopicKind.AGGREGATE_INPUTS, ["shop"], columns, revised=True)
        join = Join(
            left=Input(dataset=self.orders.dataset),
            right=self.prices.dataset,
            how=how,
            left_on=("sku",),
            right_on=("sku",),
            within_low_us=LOW_US if how is JoinKind.INNER else None,
            within_high_us=HIGH_US,
            fields=("shop", "price"),
        )
        price = FillNull(operand=Ref(name="price"), fill=Literal(value=100.0, dtype=FLOAT))
        dear = Filter(of=join, predicate=Binary(op=BinaryOp.GE, left=price, right=Literal(value=20.0, dtype=FLOAT)))
        operator = Aggregate(of=dear, keys=("shop",), aggregates=(_sum("price"), _sum("quantity")))
        return job(name, operator, [self.orders, self.prices], output)

    def twice_priced(self) -> JobPlan:
        """Join the same table twice, the second time by a column of the first join."""
        columns: dict[str, DataType] = {"sku": STRING, "quantity": INT, "shop": STRING, "other": FLOAT}
        output = topic(f"twice{self.suffix}", TopicKind.EVENTS, [], columns, revised=True)
        first = self._join(Input(dataset=self.orders.dataset), "sku", ("shop",))
        second = Rename(of=self._join(first, "shop", ("price",)), pairs=(("price", "other"),))
        return job(f"twice{self.suffix}", second, [self.orders, self.prices], output)

    def _join(self, left: Operator, on: str, fields: tuple[str, ...]) -> Join:
        return Join(
            left=left,
            right=self.prices.dataset,
            how=JoinKind.INNER,
            left_on=(on,),
            right_on=("sku",),
            within_low_us=None,
            within_high_us=0,
            fields=fields,
        )

    def stock(self) -> JobPlan:
        """Add up the prices that hold, by shop."""
        output = topic(
            f"stock{self.suffix}", TopicKind.AGGREGATE_INPUTS, ["shop"], {"shop": STRING, "price": FLOAT}, revised=True
        )
        dear = Filter(of=Input(dataset=self.prices.dataset), predicate=_compare(BinaryOp.GE, "price", 20.0, FLOAT))
        operator = Aggregate(of=dear, keys=("shop",), aggregates=(_sum("price"),))
        return job(f"stock{self.suffix}", operator, [self.prices], output)

    def jobs(self) -> list[JobPlan]:
        joins = [self.priced(JoinKind.LEFT), self.priced(JoinKind.INNER), self.twice_priced()]
        return [self.doubled(), *joins, self.stock()]


def traffic(seed: int, count: int, skus: int = 5) -> tuple[list[Sent], list[Sent]]:
    """Make orders and prices at few times, so that many coincide, in random order."""
    rng = random.Random(seed)
    orders = [
        Sent(row=[f"s{rng.randrange(skus)}", rng.randrange(-2, 10)], time_us=rng.randrange(count), ingested_us=i)
        for i in range(count)
    ]
    prices = []
    for i in range(count // 3):
        sku = f"s{rng.randrange(skus)}"
        op = 1 if rng.random() < 0.85 else -1
        # Shops have names of products, so that a second join can use them as its key.
        row = [sku, f"s{rng.randrange(3)}", float(rng.randrange(60))]
        prices.append(Sent(row=row, key=[sku], time_us=rng.randrange(count), op=op, ingested_us=i))
    return orders, prices


def expected_of(job: JobPlan, orders: Sequence[Sent], prices: Sequence[Sent]) -> list[Any]:
    """Return the final output of one of the shop's jobs."""
    match job.job_id.split("-")[0]:
        case "doubled":
            return expect_doubled(orders)
        case "twice":
            return expect_twice(orders, prices)
        case "stock":
            return expect_stock(prices)
        case how:
            return expect_priced(orders, prices, JoinKind(how))


def expect_doubled(orders: Sequence[Sent]) -> list[Any]:
    expected = [[o.time_us, 1, [sku, 2 * n]] for o in orders for sku, n in [o.values] if n > 0]
    return sorted(expected, key=repr)


def expect_priced(orders: Sequence[Sent], prices: Sequence[Sent], how: JoinKind) -> list[Any]:
    expected = []
    for order in orders:
        sku, quantity = order.values
        price = version_at(prices, sku, order.time_us + HIGH_US)
        too_old = how is JoinKind.INNER and price is not None and price.time_us < order.time_us - LOW_US
        shop, amount = (None, None) if price is None or price.op != 1 or too_old else price.values[1:]
        if shop is None and how is JoinKind.INNER:
            continue
        if (100.0 if amount is None else amount) >= 20.0:
            expected.append([order.time_us, 1, [shop, amount, quantity]])
    return sorted(expected, key=repr)


def expect_twice(orders: Sequence[Sent], prices: Sequence[Sent]) -> list[Any]:
    expected = []
    for order in orders:
        sku, quantity = order.values
        first = version_at(prices, sku, order.time_us)
        if first is None or first.op != 1:
            continue
        second = version_at(prices, first.values[1], order.time_us)
        if second is not None and second.op == 1:
            expected.append([order.time_us, 1, [sku, quantity, first.values[1], second.values[2]]])
    return sorted(expected, key=repr)


def expect_stock(prices: Sequence[Sent]) -> list[Any]:
    expected = []
    for sku in {p.key[0] for p in prices}:
        versions = sorted((p for p in prices if p.key[0] == sku), key=lambda p: p.time_us)
        for version, following in zip(versions, [*versions[1:], None], strict=True):
            if version.op != 1 or version.values[2] < 20.0:
                continue
            expected.append([version.time_us, 1, [version.values[1], version.values[2]]])
            if following is not None:
                expected.append([following.time_us, -1, [version.values[1], version.values[2]]])
    return sorted(expected, key=repr)


def version_at(prices: Sequence[Sent], sku: str, time_us: int) -> Sent | None:
    """Return the newest version at a time; among several of one time the last one that was sent."""
    found = None
    for price in prices:
        if price.key[0] == sku and price.time_us <= time_us and (found is None or price.time_us >= found.time_us):
            found = price
    return found
