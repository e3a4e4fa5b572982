"""Tests of the joins that must retract, after a restart, the records that a failed attempt may have sent."""

import pytest

from caraway.dataplane.streams.spark.regrouping import regrouping_joins
from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.expr.nodes import Ref
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    AssignFunction,
    Changelog,
    Dedup,
    First,
    Input,
    Join,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.plan.model import Column, JobPlan, RecordSchema, TopicKind, TopicPlan
from caraway.graph.windows import ContinuousWindow
from tests.unit.dataplane.streams.plans import job, topic
from tests.unit.graph.building import join

FUNCTION = PythonFunction(name="any", source_code="", pickled=b"")
EVENTS, TABLE = Input(dataset="Events"), Input(dataset="Table")


def _topic(name: str, kind: TopicKind, keys: int = 0) -> TopicPlan:
    columns = (Column(name="user", dtype=INT), Column(name="town", dtype=STRING), Column(name="price", dtype=FLOAT))
    schema = RecordSchema(keys=columns[:keys], columns=columns, timestamp="at", fingerprint=1)
    return topic(name, kind, schema, revised=True)


def _plan(operator: Operator) -> JobPlan:
    kind = TopicKind.AGGREGATE_INPUTS if isinstance(operator, Aggregate) else TopicKind.EVENTS
    inputs = _topic("Events", TopicKind.EVENTS), _topic("Table", TopicKind.VERSIONS, keys=1)
    return job("job", *inputs, operator=operator, output=_topic("Derived", kind))


def _join(left: Operator, right: str, field: str = "town", *, on: str = "user") -> Join:
    return join(left, right, on, field, right_on="user")


def _counted(of: Operator, by: str = "town") -> Aggregate:
    forever = ContinuousWindow(length_us=None)
    count = AggregateSpec(function=AggregateFunction.COUNT, into="n", of=None, window=forever, default=None, dtype=INT)
    return Aggregate(of=of, keys=(by,), aggregates=(count,))


def _assigned(of: Operator, column: str) -> Operator:
    value = AssignedColumn(name=column, dtype=STRING, expr=Ref(name="user"))
    return Assign(of=of, columns=(value,))


def _computed(of: Operator, column: str) -> Operator:
    return AssignFunction(of=of, column=column, dtype=STRING, function=FUNCTION)


def _narrow(of: Operator) -> Operator:
    return Select(of=of, columns=("user", "town"))


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        # Other jobs read the output, and may group it by any column.
        (_join(EVENTS, "A"), {"A"}),
        (Latest(of=_join(EVENTS, "A"), keys=("town",)), {"A"}),
        # A shard of a divided index reads some groups only.
        (_counted(_join(EVENTS, "A")), {"A"}),
        (_counted(_narrow(Union(left=_join(EVENTS, "A"), right=EVENTS))), {"A"}),
        (_counted(Rename(of=_join(EVENTS, "A", "place"), pairs=(("place", "home"), ("home", "town")))), {"A"}),
        (_counted(_assigned(_join(EVENTS, "A", "place"), "town")), {"A"}),
        (_counted(_computed(_join(EVENTS, "A", "place"), "town")), {"A"}),
        (_counted(Transform(of=_join(EVENTS, "A", "place"), function=FUNCTION)), {"A"}),
        # The group doesn't depend on the joined columns.
        (_counted(_join(EVENTS, "A"), "user"), set()),
        (_counted(_assigned(_join(EVENTS, "A"), "price"), "user"), set()),
        (_counted(_computed(_join(EVENTS, "A"), "price"), "user"), set()),
        (_counted(Rename(of=_join(EVENTS, "A"), pairs=(("town", "home"), ("user", "town")))), set()),
        # The join key of the second join is a column of the first one, or isn't.
        (_counted(_join(_join(EVENTS, "A", "place"), "B", on="place")), {"A", "B"}),
        (_counted(_join(_join(EVENTS, "A", "place"), "B")), {"B"}),
        (_counted(_join(_join(EVENTS, "A"), "B", "place")), {"A"}),
        # The left row of a join of tables may be another one of the same key.
        (_counted(_join(TABLE, "A"), "user"), {"A"}),
        (_counted(_join(Latest(of=EVENTS, keys=("user",)), "A", "place")), {"A"}),
        # These steps group rows before the aggregate does.
        (_counted(Dedup(of=_narrow(_join(EVENTS, "A")), by=("town",))), {"A"}),
        (_counted(_join(First(of=_join(EVENTS, "A"), keys=("town",)), "B"), "user"), {"A", "B"}),
        (_counted(_join(Dedup(of=_join(EVENTS, "A"), by=("user",)), "B")), {"A", "B"}),
        (_counted(Latest(of=_join(_join(EVENTS, "A"), "B"), keys=("town",))), {"A", "B"}),
        (_counted(Changelog(of=_join(TABLE, "A"), column="new", marks_inserts=True)), {"A"}),
        (_counted(_join(_narrow(_join(TABLE, "A")), "B")), {"A", "B"}),
        (_counted(_join(Changelog(of=TABLE, column="new", marks_inserts=True), "B"), "user"), set()),
    ],
)
def test_joins_that_name_groups_and_keys_further_on(operator: Operator, expected: set[str]) -> None:
    assert {join.right for join in regrouping_joins(_plan(operator))} == expected
