"""Tests that all output for the rows before a marker is on the output topic before the marker's arrivals."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from caraway.apps.server.waiting.goals import Goal, Goals
from caraway.apps.server.waiting.markers import Markers
from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import GraphPlan, JobPlan
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker, Received, rows_of
from tests.integration.spark.shop import Shop
from tests.messages import positions_of
from tests.timeouts import deadline_in

ROUNDS, ROWS = 4, 400
PARTITIONS, TASKS = 2, 3
LIMIT_S = 180.0


def seen(broker: Broker, job: JobPlan, goal: Goal) -> list[Any]:
    """Return the consolidated output of a job up to a goal."""
    codec = RecordCodec(job.output.schema)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(job.output.name, partition, 0) for partition in goal])
    left, found = {partition for partition, end in goal.items() if end}, list[Received]()
    deadline = deadline_in(LIMIT_S)
    while left:
        assert time.monotonic() < deadline
        for message in consumer.consume(1_000, 0.2):
            offset, partition = message.offset() or 0, message.partition() or 0
            assert message.error() is None
            if offset + 1 >= goal[partition]:
                left.discard(partition)
            if offset < goal[partition] and not is_marker(message.key()):
                for identity, value in positions_of(message):
                    record = codec.decode_value(value)
                    found.append(Received(message.key(), record, record.id or identity))
    consumer.close()
    return rows_of(found)


def goals_of(broker: Broker, writer: TopicWriter, jobs: Sequence[JobPlan]) -> Mapping[str, Goal]:
    """Write markers, and return for each job the goal up to which its output includes the rows before them."""
    goals = Goals(GraphPlan(jobs=tuple(jobs)))
    sources = {topic.name for job in jobs for topic in job.inputs}
    goals.known = dict(TopicEnds(broker.bootstrap_servers).ends(sources))
    markers = Markers(broker.bootstrap_servers, writer, {job.job_id: job for job in jobs})
    try:
        markers.begin()
        deadline = deadline_in(LIMIT_S)
        while lagging := goals.lagging([], []):
            assert time.monotonic() < deadline, lagging
            markers.send(goals)
            markers.read(0.05)
            goals.advance(markers.ends.ends, [], [], markers.arrived)
    finally:
        markers.close()
    return {job.job_id: goals.known[job.output.name] for job in jobs}


_ALONE = pytest.mark.full(reason="twenty seconds; the case of several partitions is the harder one")


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=_ALONE), PARTITIONS])
def test_what_stands_before_the_arrivals_is_all_that_follows_from_the_rows_before_the_marker(
    partitions: int, broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(f"-marked-{partitions}")
    orders, prices = model.traffic(seed=partitions, count=ROUNDS * ROWS)
    jobs = shop.jobs()
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs), partitions=partitions)
    queries = [
        start_job(
            spark,
            job,
            bootstrap_servers=broker.bootstrap_servers,
            checkpoint=tmp_path / job.job_id,
            # The interval is longer than the test, so the test depends on arrivals and not on checkpoints.
            checkpoint_interval_seconds=600,
            tasks=TASKS,
        )
        for job in jobs
    ]
    half = len(prices) // ROUNDS
    with TopicWriter(broker.bootstrap_servers) as writer:
        for count in range(1, ROUNDS + 1):
            broker.send(shop.orders, orders[(count - 1) * ROWS : count * ROWS])
            broker.send(shop.prices, prices[(count - 1) * half : count * half])
            for job_id, goal in goals_of(broker, writer, jobs).items():
                job = next(job for job in jobs if job.job_id == job_id)
                expected = model.expected_of(job, orders[: count * ROWS], prices[: count * half])
                assert seen(broker, job, goal) == expected, (job_id, count)
    failures = [query.exception() for query in queries]
    for query in queries:
        query.stop()
    assert failures == [None] * len(queries)
