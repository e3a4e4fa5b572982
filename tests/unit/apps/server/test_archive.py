"""The sizes of the archive's tables, as the server answers with them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from caraway.apps.server.handlers.archive import answered
from caraway.dataplane.archive.reports import ArchivedTable
from caraway.dataplane.archive.store.model import TableReport, TableSize
from caraway.graph.plan.model import TopicKind, TopicPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from tests.unit.apps.server.control.graphs import clicks, spend

(CLICKS,) = plan_graph(Graph(datasets=(clicks(), spend()))).jobs[0].inputs


@pytest.mark.parametrize(
    ("topic", "rows"),
    [
        (CLICKS, 7),
        (replace(CLICKS, revised=True), None),
        (replace(CLICKS, kind=TopicKind.VERSIONS), None),
        (replace(CLICKS, kind=TopicKind.AGGREGATE_INPUTS), 7),
    ],
)
def test_corrections_are_counted_as_records_and_not_as_rows(topic: TopicPlan, rows: int | None) -> None:
    report = TableReport(
        topic=CLICKS.name, dataset="Clicks", url="file:///t", positions={}, size=TableSize(rows=7, files=1, bytes=9)
    )
    held = {CLICKS.name: ArchivedTable(report=report, written_at=datetime(2024, 5, 1, tzinfo=UTC))}
    (table,) = answered([topic], held, {})
    assert (table.records, table.rows) == (7, rows)
