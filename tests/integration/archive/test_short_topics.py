"""Topics that are shorter than their history: whoever begins before them reads the archive, without gap or overlap."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.dataplane.archive.store.past import Pasts
from caraway.dataplane.archive.trimming import remove_before
from caraway.dataplane.index.feeding.tail import PastOf, without_past
from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import TopicKind, TopicPlan
from tests.integration.archive.archiving import archive_all
from tests.integration.index.flow import PLANS, TIMEOUT_S, Flow, wait_for, wait_until_caught_up
from tests.unit.dataplane.index.naive import SCHEMA

PARTITIONS = 3


@pytest.fixture
def topic(kafka: str) -> str:
    name = f"short.{secrets.token_hex(6)}"
    ensure_topics(kafka, [name], PARTITIONS)
    return name


def topic_plan(topic: str) -> TopicPlan:
    return TopicPlan(dataset="D", name=topic, kind=TopicKind.VERSIONS, schema=SCHEMA, disorder_us=0)


@pytest.fixture
def flow(kafka: str, topic: str) -> Iterator[Flow]:
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        yield Flow(writer, topic)


@contextmanager
def following(kafka: str, folder: Path, topic: str, past_of: PastOf) -> Iterator[tuple[IndexWorker, IndexReader]]:
    with IndexStore(folder) as store:
        worker = IndexWorker(kafka, store, past_of=past_of)
        worker.set_plans([replace(plan, topic=topic) for plan in PLANS])
        worker.start()
        try:
            yield worker, IndexReader(store)
        finally:
            worker.stop()


def test_an_index_is_built_from_the_archive_and_then_from_the_topic(
    kafka: str, topic: str, flow: Flow, tmp_path: Path
) -> None:
    flow.send(3000)
    ends = archive_all(kafka, tmp_path / "objects", topic_plan(topic))[topic]
    flow.send(500)
    # Each partition is cut at another place, one of them not at all.
    remove_before(kafka, {topic: {0: ends[0], 1: ends[1] // 2}})
    assert dict(TopicEnds(kafka).beginnings([topic])[topic]) == {0: ends[0], 1: ends[1] // 2, 2: 0}
    with following(kafka, tmp_path / "index", topic, Pasts(kafka, str(tmp_path / "objects"))) as (worker, reader):
        wait_until_caught_up(worker, topic, 3500)
        flow.send(100)
        wait_until_caught_up(worker, topic, 3600)
        flow.check(reader, [replace(plan, topic=topic) for plan in PLANS])


def test_an_index_that_was_away_while_its_topic_was_cut_goes_on(
    kafka: str, topic: str, flow: Flow, tmp_path: Path
) -> None:
    pasts = Pasts(kafka, str(tmp_path / "objects"))
    flow.send(500)
    with following(kafka, tmp_path / "index", topic, pasts) as (worker, _):
        wait_until_caught_up(worker, topic, 500)
    flow.send(1000)
    remove_before(kafka, archive_all(kafka, tmp_path / "objects", topic_plan(topic)))
    flow.send(200)
    with following(kafka, tmp_path / "index", topic, pasts) as (worker, reader):
        wait_until_caught_up(worker, topic, 1700)
        flow.check(reader, [replace(plan, topic=topic) for plan in PLANS])


def test_an_index_waits_for_what_is_nowhere(
    kafka: str, topic: str, flow: Flow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow.send(600)
    ends = archive_all(kafka, tmp_path / "objects", topic_plan(topic))
    remove_before(kafka, ends)
    with caplog.at_level(logging.ERROR), following(kafka, tmp_path / "index", topic, without_past) as (worker, _):
        wait_for(lambda: f"the index waits for topic {topic}" in caplog.text, "a message that tells why it waits")
        assert all(sum(status.offsets.values()) == 0 for status in worker.positions())
    # With the archive it goes on.
    with following(kafka, tmp_path / "index", topic, Pasts(kafka, str(tmp_path / "objects"))) as (worker, reader):
        wait_until_caught_up(worker, topic, 600)
        flow.check(reader, [replace(plan, topic=topic) for plan in PLANS])


def test_stops_in_the_middle_of_the_past_neither_lose_nor_double(
    kafka: str, topic: str, flow: Flow, tmp_path: Path
) -> None:
    flow.send(4000)
    remove_before(kafka, archive_all(kafka, tmp_path / "objects", topic_plan(topic)))
    pasts = Pasts(kafka, str(tmp_path / "objects"))
    reads, stops = threading.Semaphore(0), 3

    class Slow:
        """A past that is read in small pieces, and counts them."""

        def __init__(self, plan: object) -> None:
            self.past = pasts(plan)  # type: ignore[arg-type]

        def read(self, positions: object, records: int) -> object:
            del records
            found = self.past.read(positions, 60)  # type: ignore[arg-type]
            reads.release()
            return found

    slow: Callable[[object], object] = Slow
    for _ in range(stops):
        with following(kafka, tmp_path / "index", topic, slow) as (worker, _reader):  # type: ignore[arg-type]
            for _ in range(4):
                assert reads.acquire(timeout=TIMEOUT_S)
            reached = [sum(status.offsets.values()) for status in worker.positions()]
            assert max(reached) < 4000
    with following(kafka, tmp_path / "index", topic, pasts) as (worker, reader):
        wait_until_caught_up(worker, topic, 4000)
        flow.check(reader, [replace(plan, topic=topic) for plan in PLANS])


def test_records_that_are_gone_before_they_were_archived_are_not_waited_for(
    kafka: str, topic: str, flow: Flow, tmp_path: Path
) -> None:
    flow.send(100)
    ends = dict(TopicEnds(kafka).ends([topic])[topic])
    remove_before(kafka, {topic: ends})
    # It returns when the archive reports that nothing is left to archive.
    assert archive_all(kafka, tmp_path / "objects", topic_plan(topic)) == {topic: ends}
