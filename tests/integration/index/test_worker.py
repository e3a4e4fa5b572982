"""The index follows real topics: late ones, shared ones, through kills of the index and of the broker."""

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient

from caraway.apps.stack import ports
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.kafka import EmbeddedKafka
from caraway.dataplane.index.feeding.worker import IndexWorker, left_out
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.delivery import Delivered
from caraway.dataplane.index.records.versions import VersionFeed
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.letter_reader import every
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.state.losses import SHOWN, Loss, Losses
from caraway.state.tables import topic_losses
from tests.alone import running
from tests.integration.index.flow import (
    PLANS,
    TIMEOUT_S,
    Flow,
    killed_when_it_gets_further,
    wait_for,
    wait_until_caught_up,
)
from tests.unit.dataplane.index.naive import CODEC, SECOND, Sent


@pytest.fixture
def topic() -> str:
    return f"index.{secrets.token_hex(6)}"


@pytest.fixture
def writer(kafka: str) -> Iterator[TopicWriter]:
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as opened:
        yield opened


@contextmanager
def following(
    broker: str, folder: Path, note_loss: Callable[[Loss], object] = lambda _: None
) -> Iterator[tuple[IndexWorker, IndexReader]]:
    with IndexStore(folder) as store:
        worker = IndexWorker(broker, store, note_loss=note_loss)
        assert not worker.is_alive()
        worker.start()
        try:
            yield worker, IndexReader(store)
            assert worker.is_alive()
        finally:
            worker.stop()
        assert not worker.is_alive()


def on(topic: str) -> list[IndexPlan]:
    return [replace(plan, topic=topic) for plan in PLANS]


def test_a_topic_is_followed_from_the_beginning_and_after_a_restart(
    kafka: str, writer: TopicWriter, topic: str, tmp_path: Path
) -> None:
    flow, other = Flow(writer, topic), Flow(writer, f"{topic}.other")
    ensure_topics(kafka, [other.topic], 1)
    other.send(1)
    with following(kafka, tmp_path / "index") as (worker, reader):
        worker.set_plans([*on(topic), replace(PLANS[1], topic=other.topic, asset=b"other--1")])
        # When the other topic has been read, the topic that doesn't exist yet has been looked for.
        wait_until_caught_up(worker, other.topic, 1, indexes=1)
        ensure_topics(kafka, [topic], 3)
        flow.send(3000)
        statuses = wait_until_caught_up(worker, topic, 3000)
        assert all(s.refused == 0 and s.newest_ingested_us == 1 for s in statuses)
        # So many records are read by the thread for backlogs, which hands the indexes over afterwards.
        wait_for(lambda: all(s.following for s in worker.positions()), "the hand-over")
        wait_for(lambda: all(s.lag == 0 for s in worker.positions()), "no lag")
        flow.check(reader)
    flow.send(500)
    with following(kafka, tmp_path / "index") as (worker, reader):
        worker.set_plans(on(topic))
        statuses = wait_until_caught_up(worker, topic, 3500)
        assert [s.written + s.unchanged for s in statuses] == [500, 500]
        flow.check(reader)


def test_an_index_that_joins_a_topic_catches_up_while_others_stay(
    kafka: str, writer: TopicWriter, topic: str, tmp_path: Path
) -> None:
    ensure_topics(kafka, [topic], 2)
    flow = Flow(writer, topic)
    flow.send(4000)
    first, second = on(topic)
    with following(kafka, tmp_path / "index") as (worker, reader):
        worker.set_plans([first])
        wait_until_caught_up(worker, topic, 4000, indexes=1)
        worker.set_plans([first, second])
        flow.send(1000)
        wait_for(lambda: len(worker.positions()) == 2 and all(s.following for s in worker.positions()), "hand-over")
        statuses = wait_until_caught_up(worker, topic, 5000)
        assert sorted(s.written + s.unchanged for s in statuses) == [5000, 5000]
        flow.check(reader)
        # A removed index that is added again continues at its offset.
        worker.set_plans([second])
        wait_for(lambda: len(worker.positions()) == 1, "the first one to leave")
        flow.send(200)
        worker.set_plans([first, second])
        wait_until_caught_up(worker, topic, 5200)
        flow.check(reader)
        worker.set_plans([])
        wait_for(lambda: not worker.positions(), "all to leave")


def test_superseded_versions_are_removed_while_the_topic_is_followed(
    kafka: str, writer: TopicWriter, topic: str, tmp_path: Path
) -> None:
    ensure_topics(kafka, [topic], 2)
    flow = Flow(writer, topic)
    windows, versions = on(topic)
    stopping = threading.Event()
    with following(kafka, tmp_path / "index") as (worker, reader):
        worker.set_plans([windows, versions])
        assert worker.expire(b"nothing!", 10**18, stopping) == 0
        flow.send(3000)
        wait_until_caught_up(worker, topic, 3000)
        wait_for(lambda: all(s.following for s in worker.positions()), "hand-over")
        horizon_us = flow.ids * SECOND // 20
        assert worker.expire(windows.asset, horizon_us, stopping) == 0
        assert 500 < worker.expire(versions.asset, horizon_us, stopping) < 3000
        assert worker.expire(versions.asset, horizon_us, stopping) == 0
        flow.check(reader, [windows])
        flow.check(reader, [versions], since_us=horizon_us)
        stopping.set()
        assert worker.expire(versions.asset, 10**18, stopping) == 0
        stopping.clear()
        # No index follows the topic any more.
        worker.set_plans([windows])
        wait_for(lambda: len(worker.positions()) == 1, "the versions to leave")
        assert worker.expire(versions.asset, 10**18, stopping) == 0


def test_a_record_that_cannot_be_read_or_applied_becomes_a_dead_letter(
    kafka: str, writer: TopicWriter, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No accepted record is skipped in silence: a letter names it, and the count stays over a restart."""
    ensure_topics(kafka, [topic], 1)
    flow = Flow(writer, topic)
    apply = VersionFeed.apply
    bad = CODEC.encode_key(["bad"]) or b""

    def refusing(feed: VersionFeed, records: Sequence[Delivered], *rest: Any) -> None:
        if any(record.key == bad for record in records):
            raise ZeroDivisionError("of this row")
        apply(feed, records, *rest)

    monkeypatch.setattr(VersionFeed, "apply", refusing)
    with following(kafka, tmp_path / "index") as (worker, reader):
        worker.set_plans(on(topic))
        flow.send(10)
        writer.write(topic, [(b"\x91\xa1a", b"nonsense", None)]).result(TIMEOUT_S)
        row = Sent("bad", position_id(11, 0), b"\0\0\0\0", PUT, 10, (1, 0.5, None))
        writer.write(topic, [(*row.message(0)[:2], None)]).result(TIMEOUT_S)  # type: ignore[list-item]
        flow.send(10)
        wait_until_caught_up(worker, topic, 22)
        statuses = worker.positions()
        assert {s.asset: s.refused for s in statuses} == {PLANS[0].asset.hex(): 1, PLANS[1].asset.hex(): 2}
        assert "dead letters tell" in left_out(statuses)
        assert worker.is_alive()
        flow.check(reader)
    letters = [letter for found in every(kafka) for letter in found if letter.body.get("topic") == topic]
    # Both indexes left out the first record, of which there is one letter or two equal ones, as Kafka compacts later.
    reasons = {letter.body["position"]: letter.body["reason"][0]["message"] for letter in letters}
    assert reasons.keys() == {"0@10", "0@11"}
    assert "ZeroDivisionError: of this row" in reasons["0@11"]
    assert len({letter.key for letter in letters}) == 2
    assert {(letter.body["follower"], letter.body["dataset"]) for letter in letters} == {("index", PLANS[0].dataset)}
    with following(kafka, tmp_path / "index") as (worker, _):
        worker.set_plans(on(topic))
        wait_for(lambda: sum(s.refused for s in worker.positions()) == 3, "the counts of before")


def test_a_topic_that_begins_anew_is_indexed_anew(
    kafka: str, writer: TopicWriter, topic: str, tmp_path: Path, engine: sa.Engine
) -> None:
    """The loss is in Postgres for a day, where a server finds it that is started later."""
    ensure_topics(kafka, [topic], 1)
    Flow(writer, topic, seed=1).send(500)
    with following(kafka, tmp_path / "index") as (worker, _):
        worker.set_plans(on(topic))
        wait_until_caught_up(worker, topic, 500)
    admin = AdminClient({"bootstrap.servers": kafka})
    (deleted,) = admin.delete_topics([topic]).values()
    deleted.result(TIMEOUT_S)
    wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "deletion")
    ensure_topics(kafka, [topic], 1)
    with TopicWriter(kafka) as other:
        flow = Flow(other, topic, seed=2)
        flow.send(100)
        losses = Losses(engine)
        with following(kafka, tmp_path / "index", losses.note) as (worker, reader):
            worker.set_plans(on(topic))
            # At first the indexes are still at offset 500 of the deleted topic.
            wait_for(
                lambda: [sum(s.offsets.values()) for s in worker.positions()] == [100] * len(PLANS), "the new records"
            )
            flow.check(reader)
    (loss,) = losses.recent()
    assert (loss.topic, loss.kind) == (topic, "index")
    assert "0@500" in loss.text
    with engine.begin() as connection:
        connection.execute(sa.update(topic_losses).values(found_at=topic_losses.c.found_at - SHOWN))
    assert losses.recent() == []


@pytest.mark.full(reason="kills for half a minute; tests/unit/dataplane/index/test_store.py tears the log of an index")
def test_kills_in_mid_batch_leave_data_and_offsets_consistent(
    kafka: str, writer: TopicWriter, topic: str, tmp_path: Path
) -> None:
    ensure_topics(kafka, [topic], 2)
    flow = Flow(writer, topic)
    for _ in range(3):
        with killed_when_it_gets_further(kafka, str(tmp_path / "index"), "flow", topic):
            flow.send(6000)
    with following(kafka, tmp_path / "index") as (worker, reader):
        worker.set_plans(on(topic))
        wait_until_caught_up(worker, topic, 18_000)
        flow.check(reader)


@pytest.mark.full(reason="a broker of its own that is killed; tests/e2e/test_kill.py kills that of a stack")
@pytest.mark.timeout(600)
def test_a_broker_that_is_killed_and_comes_back_is_found_again(jars: JarSet, topic: str, tmp_path: Path) -> None:
    port = ports.choose()
    broker = EmbeddedKafka(
        tmp_path / "kafka", port=port, controller_port=ports.choose(avoid=[port]), jars=jars.broker, with_password=False
    )
    with (
        TopicWriter(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as writer,
        following(broker.bootstrap_servers, tmp_path / "index") as (worker, reader),
    ):
        flow = Flow(writer, topic)
        worker.set_plans(on(topic))
        with running(broker, tmp_path / "kafka.log") as pid:
            ensure_topics(broker.bootstrap_servers, [topic], 2)
            flow.send(1000)
            wait_until_caught_up(worker, topic, 1000)
            os.kill(pid, signal.SIGKILL)
        # Records written while the broker is away arrive once it is back, and only once.
        waiting = flow.make(50)
        future = writer.write(topic, [(*record.message(0)[:2], None) for record in waiting])  # type: ignore[misc]
        with (
            TopicWriter(broker.bootstrap_servers, timeout_s=1) as impatient,
            pytest.raises(UnavailableError, match="didn't take a row"),
        ):
            impatient.write(topic, [(b"\x91\xa1a", b"never sent", None)]).result(TIMEOUT_S)
        assert not future.done()
        with running(broker, tmp_path / "kafka.log"):
            future.result(TIMEOUT_S)
            flow.sent += waiting
            flow.send(1000)
            wait_until_caught_up(worker, topic, 2050)
            assert all(sum(s.offsets.values()) == 2050 for s in worker.positions())
            flow.check(reader)


@pytest.mark.full(reason="a broker of its own that is started twice; `test_a_topic_that_begins_anew…` lacks an offset")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [50, 400])
def test_records_that_a_broker_lost_are_told_even_if_others_are_in_their_places(
    jars: JarSet, topic: str, tmp_path: Path, after: int
) -> None:
    """After a power failure an index is ahead of its topic; it must not go on as if nothing had happened.

    Postgres is away, too, so the loss can't be noted, which doesn't keep the index from going on.
    """
    told: list[Loss] = []

    def note(loss: Loss) -> None:
        told.append(loss)
        raise UnavailableError("Postgres is away")

    port = ports.choose()
    broker = EmbeddedKafka(
        tmp_path / "kafka", port=port, controller_port=ports.choose(avoid=[port]), jars=jars.broker, with_password=False
    )
    servers, folder = broker.bootstrap_servers, tmp_path / "index"
    with running(broker, tmp_path / "kafka.log") as pid, TopicWriter(servers, timeout_s=TIMEOUT_S) as writer:
        ensure_topics(servers, [topic], 1)
        flow = Flow(writer, topic)
        flow.send(100)
        (log,) = tmp_path.glob(f"kafka/data/{topic}-0/*.log")
        kept = log.stat().st_size
        flow.send(200)
        with following(servers, folder) as (worker, _):
            worker.set_plans(on(topic))
            wait_until_caught_up(worker, topic, 300)
        os.kill(pid, signal.SIGKILL)
    os.truncate(log, kept)
    with running(broker, tmp_path / "kafka.log"), TopicWriter(servers, timeout_s=TIMEOUT_S) as writer:
        flow.sent, flow.writer = flow.sent[:100], writer
        # With 400 more, the topic has other records where the index has been.
        flow.send(after)
        with following(servers, folder, note) as (worker, reader):
            worker.set_plans(on(topic))
            wait_for(
                lambda: [sum(s.offsets.values()) for s in worker.positions()] == [100 + after] * 2 and told,
                "the index that is built anew",
            )
            assert {loss.topic for loss in told} == {topic}
            assert all("0@300" in loss.text for loss in told)
            flow.check(reader)
        # It is told once: the new index has followed the topic from its beginning.
        told.clear()
        with following(servers, folder, note) as (worker, reader):
            worker.set_plans(on(topic))
            flow.send(10)
            wait_until_caught_up(worker, topic, 110 + after)
            assert told == []
            flow.check(reader)
