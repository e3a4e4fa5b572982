"""The cases of the benchmark of operators: input datasets, and a pipeline for each operator."""

from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, ListType
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.capture.shipping import python_function
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    AssignFunction,
    Changelog,
    Dedup,
    Explode,
    Filter,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Union,
)
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow

SECOND = 1_000_000
DAY_US = 86_400 * SECOND


def source(name: str, keys: dict[str, DataType], values: dict[str, DataType]) -> DatasetSpec:
    """Return a dataset that is fed by a webhook."""
    fields = (
        *(FieldSpec(name=column, dtype=dtype, key=True) for column, dtype in keys.items()),
        *(FieldSpec(name=column, dtype=dtype) for column, dtype in values.items()),
        FieldSpec(name="at", dtype=DATETIME, timestamp=True),
    )
    connector = WebhookConnector(name="hook", endpoint=name, retention_us=14 * DAY_US)
    origin = SourceSpec(connector=connector, disorder_us=14 * DAY_US, cdc=Cdc.UPSERT if keys else Cdc.APPEND)
    return DatasetSpec(name=name, version=1, history_us=0, fields=fields, index=None, sources=(origin,))


SOURCES = {
    spec.name: spec
    for spec in (
        source("Clicks", {}, {"user": INT, "price": FLOAT, "note": STRING}),
        source("Users", {"user": INT}, {"town": STRING, "level": INT}),
        source("Carts", {"cart": INT}, {"user": INT, "total": FLOAT}),
        source("Baskets", {}, {"user": INT, "items": ListType(of=STRING)}),
    )
}
CLICKS, USERS, CARTS, BASKETS = (Input(dataset=name) for name in SOURCES)


def _sum(of: str, days: float, dtype: DataType = FLOAT) -> AggregateSpec:
    window = ContinuousWindow(length_us=int(days * DAY_US))
    into = f"{of}_{days}"
    return AggregateSpec(function=AggregateFunction.SUM, into=into, of=of, window=window, default=None, dtype=dtype)


def _joined(left: Operator, *fields: str, within_us: int | None = None) -> Join:
    return Join(
        left=left,
        right="Users",
        how=JoinKind.LEFT,
        left_on=("user",),
        right_on=("user",),
        within_low_us=within_us,
        within_high_us=0,
        fields=fields,
    )


def _assigned() -> Operator:
    dear = Filter(of=CLICKS, predicate=Binary(op=BinaryOp.GE, left=Ref(name="price"), right=_float(0.0)))
    double = Binary(op=BinaryOp.MUL, left=Ref(name="price"), right=_float(2.0))
    return Assign(of=dear, columns=(AssignedColumn(name="double", dtype=FLOAT, expr=double),))


def _aggregate() -> Operator:
    sums = tuple(_sum("double", days) for days in (1 / 24, 1.0, 7.0, 30.0))
    return Aggregate(of=_assigned(), keys=("user",), aggregates=sums)


def _float(value: float) -> Literal:
    return Literal(value=value, dtype=FLOAT)


HOUR = HoppingWindow(length_us=3600 * SECOND, stride_us=3600 * SECOND)
MINUTE = SessionWindow(gap_us=60 * SECOND)
CASES: dict[str, Operator] = {
    "filter and assign": _assigned(),
    "aggregate": _aggregate(),
    "union": Union(left=CLICKS, right=CLICKS),
    "explode": Explode(of=BASKETS, columns=("items",)),
    "latest": Latest(of=CLICKS, keys=("user",)),
    "function": AssignFunction(
        of=CLICKS, column="double", dtype=FLOAT, function=python_function("bench", lambda frame: frame["price"] * 2)
    ),
    "join": _joined(CLICKS, "town"),
    "join within": _joined(CLICKS, "town", within_us=30 * DAY_US),
    "two joins": _joined(
        _joined(CLICKS, "town"),
        "level",
    ),
    "join of tables": _joined(CARTS, "town"),
    "dedup": Dedup(of=CLICKS, by=("user", "note"), window=HOUR),
    "dedup in sessions": Dedup(of=CLICKS, by=("user", "note"), window=MINUTE),
    "first": First(of=CLICKS, keys=("user",)),
    "changelog": Changelog(of=USERS, column="gone", marks_inserts=False),
    "aggregate of a table": Aggregate(of=USERS, keys=("town",), aggregates=(_sum("level", 1.0, INT),)),
}
