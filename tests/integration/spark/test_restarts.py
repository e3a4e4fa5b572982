"""Tests that a join, in its first batch after a restart, retracts what a failed attempt may have sent for each row."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.checkpoints import position_of
from caraway.dataplane.streams.spark.jobs import Trigger, start_job
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.operators import Input, Join, JoinKind
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker, Received, Sent
from tests.integration.spark.pipelines import Case

TOWNS = Join(
    left=Input(dataset="Clicks"),
    right="Users",
    how=JoinKind.INNER,
    left_on=("user",),
    right_on=("user",),
    within_low_us=None,
    within_high_us=0,
    fields=("town",),
)
CLICK: list[object] = [1, 0, None, None, [], []]
IN_A_HUNDRED_YEARS = 5 * 10**15


@pytest.mark.slow
def test_the_first_batch_after_a_restart_says_where_rows_are_not(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    _, job = model.plan(Case("Towns", TOWNS), "restarted")
    topics = {topic.dataset: topic for topic in job.inputs}
    names = [*(topic.name for topic in job.inputs), job.output.name, DEAD_LETTERS]
    ensure_topics(broker.bootstrap_servers, names, 1)
    town = [column.name for column in job.output.schema.columns].index("town")

    def run_to_the_end(tasks: int) -> None:
        query = start_job(
            spark,
            job,
            bootstrap_servers=broker.bootstrap_servers,
            checkpoint=tmp_path / "checkpoint",
            checkpoint_interval_seconds=60,
            trigger=Trigger.BACKLOG,
            tasks=tasks,
        )
        assert query.awaitTermination(300)
        # A restart with another number of tasks keeps that of the first attempt, by which the state is divided.
        assert position_of(tmp_path / "checkpoint").tasks == 2

    def said(records: Iterable[Received]) -> list[tuple[int, str, int]]:
        rows = [received.record for received in records]
        return sorted((r.time, str(r.row[town] or ""), r.op) for r in rows if r.row is not None)

    broker.send(topics["Users"], [Sent(row=[1, "Ulm", 0, []], key=[1], time_us=0)])
    broker.send(topics["Clicks"], [Sent(row=CLICK, time_us=10)])
    run_to_the_end(tasks=2)
    # The job has never run before, so there is nothing to retract.
    before = [(10, "Ulm", PUT)]
    assert broker.receive(job.output, before, view=said) == before

    clicks = [Sent(row=CLICK, time_us=20), Sent(row=CLICK, time_us=30, ingested_us=IN_A_HUNDRED_YEARS)]
    broker.send(topics["Clicks"], clicks)
    run_to_the_end(tasks=1)
    # A failed attempt can't have read the row that was ingested after the restart, so that row isn't retracted.
    after = [*before, (20, "", RETRACT), (20, "Ulm", PUT), (30, "Ulm", PUT)]
    assert broker.receive(job.output, after, view=said) == after
