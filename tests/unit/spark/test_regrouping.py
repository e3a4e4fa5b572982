"""Which joins must say again, after a restart, what a lost run may have said."""

import pytest

from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.graph.operators import (
    Aggregate,
    AggregateFunction,
    AggregateSpec,
    Changelog,
    Dedup,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Select,
    Union,
)
from caraway.graph.windows import ContinuousWindow
from caraway.plan.model import Column, JobMode, JobPlan, RecordSchema, TopicKind, TopicPlan
from caraway.spark.regrouping import regrouping_joins

EVENTS, TABLE = Input(dataset="Events"), Input(dataset="Table")


def _topic(name: str, kind: TopicKind, keys: int = 0) -> TopicPlan:
    columns = (Column(name="user", dtype=INT), Column(name="town", dtype=STRING), Column(name="price", dtype=FLOAT))
    schema = RecordSchema(keys=columns[:keys], columns=columns, timestamp="at", fingerprint=1)
    return TopicPlan(dataset=name, name=name, kind=kind, schema=schema, disorder_us=0, revised=True)


def _plan(operator: Operator) -> JobPlan:
    kind = TopicKind.CONTRIBUTIONS if isinstance(operator, Aggregate) else TopicKind.EVENTS
    return JobPlan(
        job_id="job",
        dataset="Derived",
        pipeline="pipeline",
        operator=operator,
        inputs=(_topic("Events", TopicKind.EVENTS), _topic("Table", TopicKind.VERSIONS, keys=1)),
        output=_topic("Derived", kind),
        mode=JobMode.REAL_TIME,
        mode_reason="test",
        horizon_us=0,
    )


def _join(left: Operator, right: str) -> Join:
    return Join(
        left=left,
        right=right,
        how=JoinKind.INNER,
        left_on=("user",),
        right_on=("user",),
        within_low_us=None,
        within_high_us=0,
        fields=("town",),
    )


def _counted(of: Operator) -> Aggregate:
    count = AggregateSpec(
        function=AggregateFunction.COUNT,
        into="n",
        of=None,
        window=ContinuousWindow(length_us=None),
        default=None,
        dtype=INT,
    )
    return Aggregate(of=of, keys=("town",), aggregates=(count,))


def _narrow(of: Operator) -> Operator:
    return Select(of=of, columns=("user", "town"))


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        # Other jobs read it.
        (_join(EVENTS, "A"), {"A"}),
        (Latest(of=_join(EVENTS, "A"), keys=("town",)), {"A"}),
        # An index finds a row wherever it is.
        (_counted(_join(EVENTS, "A")), set()),
        (_counted(_join(_join(EVENTS, "A"), "B")), set()),
        (_counted(_narrow(Union(left=_join(EVENTS, "A"), right=EVENTS))), set()),
        # Rows are looked at together.
        (_counted(Dedup(of=_narrow(_join(EVENTS, "A")), by=("town",))), {"A"}),
        (_counted(_join(First(of=_join(EVENTS, "A"), keys=("town",)), "B")), {"A"}),
        (_counted(_join(Dedup(of=EVENTS, by=("user",)), "B")), set()),
        (_counted(Latest(of=_join(_join(EVENTS, "A"), "B"), keys=("town",))), {"A", "B"}),
        (_counted(Changelog(of=_join(TABLE, "A"), column="new", marks_inserts=True)), {"A"}),
        # Of two tables: the second join looks at all versions of a key.
        (_counted(_join(_narrow(_join(TABLE, "A")), "B")), {"A"}),
        (_counted(_join(Changelog(of=TABLE, column="new", marks_inserts=True), "B")), set()),
    ],
)
def test_joins_that_name_groups_and_keys_further_on(operator: Operator, expected: set[str]) -> None:
    assert {join.right for join in regrouping_joins(_plan(operator))} == expected
