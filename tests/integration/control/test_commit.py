"""Commits on a real Postgres and a real Kafka."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient

from caraway.control.reconciler import Control
from caraway.control.service import CommitService
from caraway.errors import CommitError, ConflictError, UnavailableError
from caraway.graph.specs import Graph, Metadata
from caraway.graph.wire.graphs import CommitRequest, decode_graph
from caraway.state.allocation import AssetState
from caraway.state.database import connect
from caraway.state.reader import StateReader
from caraway.state.registry import JobRegistry
from tests.unit.control.graphs import clicks, shopper, spend, users

FIRST = Graph(datasets=(clicks(), spend()), featuresets=(shopper("user", "spent", "big"),))


@pytest.fixture
def service(postgres: str, kafka: str) -> Iterator[CommitService]:
    control = Control.connect(postgres, kafka)
    yield control.commits
    control.close()


@pytest.fixture
def reader(postgres: str) -> Iterator[StateReader]:
    engine = connect(postgres)
    yield StateReader(engine)
    engine.dispose()


def test_a_commit_makes_topics_and_jobs(service: CommitService, reader: StateReader, postgres: str, kafka: str) -> None:
    result = service.commit(CommitRequest(message="first", graph=FIRST), author="me@example.com")
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    assert {topic.name for topic in result.plan.topics} <= set(topics)
    assert reader.head_id() == result.commit_id
    assert decode_graph(reader.head().graph) == FIRST
    assert reader.history()[0].summary == result.summary
    engine = connect(postgres)
    assert JobRegistry(engine).desired_jobs() == result.plan.jobs
    engine.dispose()


def test_a_preview_makes_nothing(service: CommitService, reader: StateReader, kafka: str) -> None:
    graph = Graph(datasets=(replace(users(), name="OnlyLooked"),))
    result = service.commit(CommitRequest(message="look", graph=graph, preview=True))
    assert reader.head_id() is None
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    assert result.plan.topics[0].name not in topics


def test_commits_build_on_each_other(service: CommitService, reader: StateReader) -> None:
    service.commit(CommitRequest(message="first", graph=FIRST))
    service.commit(CommitRequest(message="more", graph=Graph(datasets=(users(),)), incremental=True))
    changed = Graph(datasets=(spend(above=7.0),))
    with pytest.raises(CommitError, match="'Spend'"):
        service.commit(CommitRequest(message="wrong", graph=changed, incremental=True))
    names = [dataset.name for dataset in decode_graph(reader.head().graph).datasets]
    assert names == ["Clicks", "Spend", "Users"]
    assert [record.message for record in reader.history()] == ["more", "first"]


def test_the_second_of_two_commits_learns_which_one_won(service: CommitService, postgres: str, kafka: str) -> None:
    slow = Control.connect(postgres, kafka)

    def overtake() -> None:
        service.commit(CommitRequest(message="the quick one", graph=FIRST), author="quick@example.com")

    slow.reconciler.check = overtake
    with pytest.raises(ConflictError, match=r"'the quick one' by quick@example\.com"):
        slow.commits.commit(CommitRequest(message="the slow one", graph=Graph(datasets=(users(),))))
    slow.close()


def test_without_kafka_nothing_is_committed(postgres: str, reader: StateReader) -> None:
    control = Control.connect(postgres, "127.0.0.1:1", kafka_timeout_s=1.0)
    with pytest.raises(UnavailableError, match="Kafka"):
        control.commits.commit(CommitRequest(message="first", graph=FIRST))
    assert reader.head_id() is None
    control.close()


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
