"""Commits on a real Postgres and a real Kafka."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient

from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.control.service import CommitService
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.store.model import TableReport, TableSize
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.specs import Graph, Metadata
from caraway.graph.wire.graphs import CommitRequest, decode_graph
from caraway.state.allocation import AssetState
from caraway.state.reader import StateReader
from caraway.state.registry import JobRegistry
from tests.unit.apps.server.control.graphs import clicks, shopper, spend, users

FIRST = Graph(datasets=(clicks(), spend()), featuresets=(shopper("user", "spent", "big"),))


@pytest.fixture
def service(postgres: str, kafka: str) -> Iterator[CommitService]:
    control = Control.connect(postgres, kafka)
    yield control.commits
    control.close()


@pytest.fixture
def reader(engine: sa.Engine) -> StateReader:
    return StateReader(engine)


def test_a_commit_makes_topics_and_jobs(
    service: CommitService, reader: StateReader, engine: sa.Engine, kafka: str
) -> None:
    result = service.commit(CommitRequest(message="first", graph=FIRST), author="me@example.com")
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    assert {topic.name for topic in result.plan.topics} <= set(topics)
    assert reader.head_id() == result.commit_id
    assert decode_graph(reader.head().graph) == FIRST
    assert reader.history()[0].summary == result.summary
    assert JobRegistry(engine).desired_jobs() == result.plan.jobs


def test_a_preview_counts_the_records_of_large_and_small_messages(
    service: CommitService, engine: sa.Engine, kafka: str
) -> None:
    made = service.commit(CommitRequest(message="rows", graph=Graph(datasets=(clicks(version=3),))))
    (topic,) = made.plan.topics
    row = RecordCodec(topic.schema).encode_value(op=PUT, time_us=0, ingested_us=0, row=["me", 2.0])

    def logged(messages: int, records: int) -> None:
        with TopicWriter(kafka, timeout_s=30.0) as writer:
            writer.write(topic.name, [(None, block_of([row] * records), None)] * messages).result(30.0)

    def counted() -> str:
        graph = Graph(datasets=(clicks(version=3), spend()))
        summary = service.commit(CommitRequest(message="", graph=graph, preview=True)).summary
        (line,) = (line for line in summary if line.startswith("backfill: "))
        return line.split(" reads about ")[1].split(" records,")[0]

    logged(60, 100)
    logged(30, 1)
    assert counted() == "6,030"
    # The archive knows how many records it has, whatever the last messages have.
    size = TableSize(rows=5990, files=1, bytes=1)
    report = TableReport(topic=topic.name, dataset=topic.dataset, url="", positions={0: 90}, size=size)
    ArchiveReports(engine).write(report)
    assert counted() == "5,990"
    logged(2, 1)
    assert counted() == "5,992"


def test_topics_that_nobody_needs_are_removed(postgres: str, kafka: str, reader: StateReader) -> None:
    control = Control.connect(postgres, kafka, keep=timedelta())
    made = control.commits.commit(CommitRequest(message="first", graph=Graph(datasets=(users(version=7),))))
    (topic,) = {topic.name for topic in made.plan.topics}
    admin = AdminClient({"bootstrap.servers": kafka})
    assert topic in admin.list_topics(timeout=10).topics
    gone = replace(users(version=7), metadata=Metadata(owner="me@example.com", deleted=True))
    control.commits.commit(CommitRequest(message="away", graph=Graph(datasets=(gone,))))
    assert not reader.ledger()
    assert {asset.state for asset in reader.assets()} == {AssetState.GONE}
    assert topic not in admin.list_topics(timeout=10).topics
    again = control.commits.commit(CommitRequest(message="again", graph=Graph(datasets=(users(version=7),))))
    assert [topic.name for topic in again.plan.topics] == [f"{topic}.2"]
    control.close()
