"""A power failure of the only broker: everybody who had read what it lost tells it, and goes on with what is there."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from caraway.apps.stack import ports
from caraway.apps.stack.jars import ensure_jars
from caraway.apps.stack.kafka import EmbeddedKafka
from caraway.compute.expectations.counts import Counts
from caraway.dataplane.archive.follower import Follower
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.sinks.feed import TopicFeed
from caraway.dataplane.streams.engine.losses import note, reached, require_intact
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicItem, TopicWriter
from caraway.dataplane.topics.reader import Message
from caraway.errors import UnavailableError
from caraway.graph.plan.model import TopicKind, TopicPlan
from caraway.offline.monitoring.quality.follower import QualityFollower
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.process.private_files import sync
from caraway.process.settings.settings import load_settings
from caraway.state.database import connect
from caraway.state.losses import Loss
from tests.alone import running
from tests.integration.index.flow import PLANS, TIMEOUT_S, Flow, wait_for, wait_until_caught_up
from tests.integration.index.test_worker import following, on
from tests.integration.quality.test_counting import Row, expected_of_sales, planned, record, some_rows
from tests.integration.spark.shop import Shop
from tests.services.power import powered
from tests.timeouts import deadline_in
from tests.unit.dataplane.sinks.test_worker import put
from tests.unit.dataplane.sinks.world import World, message, plan_of

# The records that are on the disk when the power fails, and those that aren't.
KEPT, LOST = 100, 200
EVENTS, CHANGES = "events", "changes"


class Nothing:
    """The past of a topic that isn't archived."""

    def read(self, positions: Mapping[int, int], records: int) -> tuple[list[Message], Mapping[int, int]]:
        del records
        return [], positions


class Readers:
    """All that reads topics of a broker; each call begins anew, as a process does that has ended."""

    def __init__(self, servers: str, folder: Path, database: str) -> None:
        self.servers, self.folder = servers, folder
        self.engine = connect(database)
        self.check, self.store = planned(servers)["Sales"], QualityStore(self.engine)
        self.job = Shop("-power").doubled()
        self.checkpoint = folder / "checkpoints" / self.job.job_id
        (self.checkpoint / "commits").mkdir(parents=True)
        self.sink = World(plan_of(), folder, {0: []}, feed=lambda: TopicFeed(servers, CHANGES, Nothing()))
        self.told: dict[str, list[str]] = {"archive": [], "watch": [], "job": []}
        self.rows: list[Row] = []
        self.read: dict[str, dict[int, int]] = {}
        ensure_topics(servers, [EVENTS, CHANGES, self.job.output.name], 1)

    def close(self) -> None:
        """Close the connections to Postgres."""
        self.engine.dispose()

    def send(self, count: int) -> None:
        """Send rows to the topics of the check and the sink, and to that which the job writes."""
        new = some_rows(random.Random(len(self.rows)), count)
        numbers = range(len(self.rows), len(self.rows) + count)
        self.rows += new
        changes = [message(self.sink.plan, put("a", n, float(n), time=n + 1), 0, 0) for n in numbers]
        with TopicWriter(self.servers, timeout_s=TIMEOUT_S) as writer:
            _write(writer, self.check.topic.name, [(None, record(self.check.topic.schema, row)) for row in new])
            _write(writer, CHANGES, [(key, value or b"") for key, value, _, _ in changes])
            _write(writer, self.job.output.name, [(b"k", b"v")] * count)

    def archive(self) -> list[int]:
        """Archive what is there, and return the offsets that the table has."""
        plan = TopicPlan(dataset="E", name=EVENTS, kind=TopicKind.EVENTS, schema=PLANS[0].schema, disorder_us=0)
        ends = self._ends(EVENTS)
        follower = Follower(
            self.servers, str(self.folder), 0.0, note_loss=lambda *loss: self.told["archive"].append(loss[-1])
        )
        with closing(follower):
            follower.follow({EVENTS: plan})
            _until(follower.step, lambda: follower.archived().get(EVENTS) == ends)
        found = ArchiveTable.existing(str(self.folder), table_path(EVENTS, topic_id(self.servers, EVENTS)))
        assert found is not None
        offsets: list[int] = found.read(["_offset"])["_offset"].to_pylist()
        return sorted(offsets)

    def count(self) -> Mapping[int, Counts]:
        """Count the rows that are there, and return all counts."""
        name, ends = self.check.check_id, self._ends(self.check.topic.name)
        follower = QualityFollower(
            self.servers,
            self.store,
            folder=self.folder,
            seconds=0.0,
            kept_s=30 * 86_400,
            note_loss=lambda _, text: self.told["watch"].append(text),
        )
        with closing(follower):
            follower.follow({name: self.check})
            _until(follower.step, lambda: {**dict.fromkeys(ends, 0), **self.store.positions(name)} == ends)
        return {number: total.counts for (_, number), total in self.store.totals([name]).items()}

    def write(self) -> list[float]:
        """Write the changes that are there to the sink's system, and return the values that it gets."""
        world, before, ends = self.sink, len(self.sink.received), self._ends(CHANGES)
        worker = world.worker()
        _until(worker.step, lambda: worker.offsets == ends)
        worker.stop()
        world.end_process()
        return [envelope["payload"]["after"]["v"] for envelope in world.received[before:]]

    def note_job(self) -> None:
        """Note a job that has read and written all that is there."""
        ends = TopicEnds(self.servers).led_ends([EVENTS, self.job.output.name])
        self.read = {EVENTS: {p: end.offset for p, end in ends[EVENTS].items()}}
        note(self.checkpoint, reached(self.read, [self.job.output.name], ends))

    def start_job(self) -> None:
        """Look at the job's topics as its start does."""
        require_intact(
            self.servers, self.job, self.checkpoint, self.read, lambda *loss: self.told["job"].append(loss[-1])
        )

    def _ends(self, topic: str) -> dict[int, int]:
        return dict(TopicEnds(self.servers).ends([topic])[topic])


def _write(writer: TopicWriter, topic: str, messages: Sequence[tuple[bytes | None, bytes]]) -> None:
    items: list[TopicItem] = [(key, value, None) for key, value in messages]
    writer.write(topic, items).result(TIMEOUT_S)


def _until(step: Callable[[], object], done: Callable[[], object]) -> None:
    deadline = deadline_in(TIMEOUT_S)
    while not done():
        assert time.monotonic() < deadline
        step()


@pytest.mark.parametrize("others", [50, 400], ids=["fewer-than-were-lost", "more-than-were-lost"])
def test_all_readers_of_a_topic_tell_what_it_has_lost_and_go_on(tmp_path: Path, postgres: str, others: int) -> None:
    """The disk of the broker has what was written some time ago; the readers' positions are ahead of it."""
    port = ports.choose()
    broker = EmbeddedKafka(
        tmp_path / "kafka",
        port=port,
        controller_port=ports.choose(avoid=[port]),
        jars=ensure_jars(load_settings()).broker,
        with_password=False,
    )
    servers, log, index = broker.bootstrap_servers, tmp_path / "kafka.log", tmp_path / "index"
    with powered(tmp_path / "kafka") as power:
        with running(broker, log), TopicWriter(servers, timeout_s=TIMEOUT_S) as writer:
            readers = Readers(servers, tmp_path / "readers", postgres)
            flow = Flow(writer, EVENTS)
            flow.send(KEPT)
            readers.send(KEPT)
        # The system writes everything after some time.
        for path in [tmp_path / "kafka", *(tmp_path / "kafka").rglob("*")]:
            sync(path)
        with running(broker, log) as pid, TopicWriter(servers, timeout_s=TIMEOUT_S) as flow.writer:
            flow.send(LOST)
            readers.send(LOST)
            with following(servers, index) as (worker, _):
                worker.set_plans(on(EVENTS))
                wait_until_caught_up(worker, EVENTS, KEPT + LOST)
            assert readers.archive() == list(range(KEPT + LOST))
            assert readers.count() == expected_of_sales(readers.rows)
            assert readers.write() == [float(n) for n in range(KEPT + LOST)]
            readers.note_job()
            readers.start_job()
            os.kill(pid, signal.SIGKILL)
        power.cut()
        with running(broker, log), TopicWriter(servers, timeout_s=TIMEOUT_S) as flow.writer:
            assert TopicEnds(servers).ends([EVENTS]) == {EVENTS: {0: KEPT}}
            del flow.sent[KEPT:]
            flow.send(others)
            readers.send(others)
            lost: list[Loss] = []
            with following(servers, index, lost.append) as (worker, reader):
                worker.set_plans(on(EVENTS))
                there = KEPT + others
                wait_for(
                    lambda: [sum(s.offsets.values()) for s in worker.positions()] == [there] * 2 and lost,
                    "the index that is built anew",
                )
                assert {loss.topic for loss in lost} == {EVENTS}
                flow.check(reader)
            assert readers.archive() == list(range(there))
            # The counts have all rows, since those of lost rows stay.
            assert readers.count() == expected_of_sales(readers.rows)
            assert readers.write() == [float(n) for n in range(KEPT + LOST, KEPT + LOST + others)]
            with pytest.raises(UnavailableError, match="put aside"):
                readers.start_job()
            assert not readers.checkpoint.exists()
            told = [*readers.told["archive"][:1], *readers.told["watch"], *readers.sink.losses, *readers.told["job"]]
            assert len(told) == 5, told
            assert all("lacks records" in text and "Send again" in text for text in told)
            assert f"0@{KEPT} to {KEPT + LOST}" in told[0]
            _all_is_told(readers)
            readers.close()


def _all_is_told(readers: Readers) -> None:
    """Check that readers that begin once more have nothing to tell."""
    before = {who: list(texts) for who, texts in readers.told.items()}
    losses = list(readers.sink.losses)
    readers.read = {}
    readers.archive()
    readers.count()
    readers.write()
    readers.start_job()
    assert (readers.told, readers.sink.losses) == (before, losses)
