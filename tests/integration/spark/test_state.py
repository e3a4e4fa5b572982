"""Tests that the state of a job stays within bounds as time goes on and new keys come that never come again."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.operators import Dedup, Input
from caraway.graph.plan.model import JobMode
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker, Sent
from tests.integration.spark.pipelines import Case

SECOND = 1_000_000
LOTS, ROWS = 5, 40_000
# The first page of each bucket isn't pruned until it is full; as many pages again are allowed for splits.
MOST_PAGES = 2 * 8_192
PAGE_BYTES = 1_024
COUNTED = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
NOTE = 200 * "-"
# Without pruning the rows would need far more pages.
assert LOTS * ROWS * len(NOTE) / PAGE_BYTES > 2 * MOST_PAGES


@pytest.mark.full(reason="200,000 rows through a state, to see it stay within bounds")
@pytest.mark.slow
def test_keys_that_never_come_again_are_forgotten(
    broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caraway.dataplane.streams.spark.stateful.SETTLE_MS", 1)
    # Spark counts the entries of the state, which are pages, only if a session wants it.
    spark.conf.set(COUNTED, "true")
    _, planned = model.plan(Case("Once", Dedup(of=Input(dataset="Clicks"), by=("user",))), "state")
    job = replace(planned, mode=JobMode.MICRO_BATCH, horizon_us=SECOND)
    (topic,) = job.inputs
    ensure_topics(broker.bootstrap_servers, [topic.name, job.output.name, DEAD_LETTERS], 1)
    query = start_job(
        spark,
        job,
        bootstrap_servers=broker.bootstrap_servers,
        checkpoint=tmp_path / "checkpoint",
        checkpoint_interval_seconds=5,
    )
    pages = []
    for lot in range(LOTS):
        numbers = range(lot * ROWS, (lot + 1) * ROWS)
        # The rows are a millisecond apart, so a second has a thousand of them.
        rows = (Sent(row=[n, 0, None, NOTE, [], []], time_us=n * SECOND // 1_000) for n in numbers)
        broker.send(topic, rows)
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        pages.append(progress.stateOperators[0].numRowsTotal)
    query.stop()
    spark.conf.set(COUNTED, "false")
    assert 0 < max(pages) <= MOST_PAGES, pages
