"""Commits on a real Postgres and a real Kafka."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient

from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.control.service import CommitService
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
