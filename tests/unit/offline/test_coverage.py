"""Rows that ask for more history than a dataset has say so."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.archive.store.reading import Part, TopicParts
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.plan.model import IndexKind, TopicPlan
from caraway.offline.coverage import Coverage, coverage_of, notes
from caraway.offline.sizes import DatasetSize
from tests.unit.dataplane.index.naive import SECOND, Sent, aggregate, index_plan
from tests.unit.offline.topics import GivenTopics, topic_of

DAY = 86_400_000_000
BEGIN = 20_000 * DAY


def test_a_row_says_which_datasets_begin_too_late_for_it() -> None:
    week = Coverage("Weekly", BEGIN, 7 * DAY)
    latest = Coverage("Latest", BEGIN + 2 * DAY, 0)
    empty = Coverage("Empty", None, DAY)
    times = [BEGIN - 1, BEGIN + DAY, BEGIN + 6 * DAY, BEGIN + 7 * DAY, None]
    weekly = "Weekly begins at 2024-10-04 00:00:00 UTC"
    both = f"{weekly}; Latest begins at 2024-10-06 00:00:00 UTC"
    assert notes([week, latest, empty], times) == [both, both, weekly, None, None]


@given(
    begins=st.none() | st.integers(-100, 100),
    reach=st.integers(0, 50),
    times=st.lists(st.none() | st.integers(-200, 200), max_size=10),
)
def test_a_row_is_short_exactly_if_its_window_begins_before_the_dataset(
    begins: int | None, reach: int, times: Sequence[int | None]
) -> None:
    found = notes([Coverage("D", begins, reach)], times)
    wanted = [begins is not None and time is not None and time - reach < begins for time in times]
    assert [note is not None for note in found] == wanted


@pytest.mark.parametrize(
    ("fields", "reach"), [(["count"], 3600 * SECOND), (["total"], 0), (["count", "total"], 3600 * SECOND)]
)
def test_the_longest_window_counts_and_records_that_wait_on_the_topic(fields: list[str], reach: int) -> None:
    hour = aggregate(AggregateFunction.SUM, "x", 3600 * SECOND)
    ever = aggregate(AggregateFunction.COUNT, None, None)
    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=(hour, ever))
    names = {"count": hour.into, "total": ever.into}
    sent = [Sent("a", position_id(n, 0), bytes(4), PUT, at, (1, 1.0, None)) for n, at in enumerate((9, 5, 7))]
    topics = Waiting({plan.topic: [record.message(n) for n, record in enumerate(sent)]})
    size = DatasetSize(dataset=plan.dataset, fields=tuple(names[field] for field in fields), found=parts(50), bytes=0)
    assert coverage_of([size], [plan], [topic_of(plan)], topics) == [Coverage(plan.dataset, 5, reach)]
    early = DatasetSize(dataset=plan.dataset, fields=size.fields, found=parts(3), bytes=0)
    assert coverage_of([early], [plan], [topic_of(plan)], topics) == [Coverage(plan.dataset, 3, reach)]
    # Too many records wait to be looked at, and none is archived.
    many = DatasetSize(dataset=plan.dataset, fields=size.fields, found=parts(None, rows=10**6), bytes=0)
    assert coverage_of([many], [plan], [topic_of(plan)], topics) == [Coverage(plan.dataset, None, reach)]


class Waiting(GivenTopics):
    """Topics of which nothing is archived."""

    def read(self, topic: TopicPlan, found: TopicParts, part: Part, wanted: Sequence[str]) -> pl.DataFrame:
        del found, part
        return self.records(topic, wanted).rows


def parts(earliest_us: int | None, rows: int = 3) -> TopicParts:
    return TopicParts((Part((), rows, 0, 0, rows),), {}, {0: 0}, {0: rows}, {0: 0}, earliest_us)
