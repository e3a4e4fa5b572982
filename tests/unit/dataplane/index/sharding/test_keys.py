"""Tests of the indexes that are divided into shards."""

from dataclasses import replace

import pytest

from caraway.dataplane.index.sharding.keys import is_divided
from caraway.graph.plan.model import IndexKind, IndexPlan, TopicKind, TopicPlan
from tests.unit.dataplane.index.naive import SCHEMA, index_plan

EVENTS = index_plan(IndexKind.AGGREGATE, revised=False)
EMITTED = TopicPlan(dataset="D", name="d.rows", kind=TopicKind.VERSIONS, schema=SCHEMA, disorder_us=0)


@pytest.mark.parametrize(
    ("plan", "divided"),
    [
        (index_plan(IndexKind.VERSIONS, revised=True), True),
        (EVENTS, True),
        # A revision may move a row from one group to another, so the rows can't be divided.
        (index_plan(IndexKind.AGGREGATE, revised=True), True),
        # One server writes the rows of this index for jobs, so it isn't divided.
        (replace(EVENTS, emits=EMITTED), False),
    ],
)
def test_all_is_divided_but_what_one_server_writes_for_jobs(plan: IndexPlan, divided: bool) -> None:
    assert is_divided(plan) is divided
