"""Rows of aggregates on a real topic, through kills of the index at any moment and the loss of its database."""

import random
import secrets
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.producer import TopicWriter
from tests.integration.index.flow import TIMEOUT_S, killed_when_it_gets_further, wait_for
from tests.integration.index.rows import CASES, Events, read
from tests.unit.dataplane.index.test_emission import Topic, check_rows

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")


def settle(broker: str, folder: Path, events: list[Events]) -> None:
    """Run an index until it has read all events."""
    with IndexStore(folder) as store:
        worker = IndexWorker(broker, store)
        worker.start()
        try:
            worker.set_plans([flow.plan for flow in events])
            wait_for(
                lambda: (
                    {s.topic: sum(s.offsets.values()) for s in worker.positions() if not s.unsent}
                    == {flow.plan.topic: flow.sent for flow in events}
                ),
                "all events and their rows",
            )
        finally:
            worker.stop()


@pytest.mark.full(reason="kills; test_worker.py stores rows and offsets together")
@pytest.mark.timeout(600)
def test_kills_neither_lose_nor_double_rows(kafka: str, tmp_path: Path) -> None:
    label, folder = secrets.token_hex(4), tmp_path / "index"
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        events = [Events(name, label, writer, kafka) for name in CASES]
        for _ in range(3):
            with killed_when_it_gets_further(kafka, str(folder), "rows", label):
                for flow in events:
                    flow.send(60)
        settle(kafka, folder, events)
        records = [flow.check() for flow in events]
        assert all(records)
        # Everything is on the topic, so another start sends nothing.
        settle(kafka, folder, events)
        assert [flow.check() for flow in events] == records
        # Without its database the index recovers from the topic what it has sent.
        shutil.rmtree(folder)
        for flow in events:
            flow.send(20)
        settle(kafka, folder, events)
        for flow in events:
            flow.check()


def test_rows_that_an_earlier_process_has_not_sent_are_reported_as_unsent(kafka: str, tmp_path: Path) -> None:
    allowed = threading.Event()
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer, IndexStore(tmp_path) as store:
        events = Events("buckets", secrets.token_hex(4), writer, kafka)
        events.send(20)

        def follow(may_emit: Callable[[], bool]) -> IndexWorker:
            worker = IndexWorker(kafka, store, may_emit=may_emit)
            worker.start()
            worker.set_plans([events.plan])
            wait_for(lambda: [sum(s.offsets.values()) for s in worker.positions()] == [events.sent], "all events")
            assert [status.unsent for status in worker.positions()] == [True]
            return worker

        follow(lambda: False).stop()
        assert read(kafka, events.rows.name) == []
        # The offsets are those of the end at once, while the rows are yet to be sent.
        worker = follow(lambda: allowed.wait(TIMEOUT_S))
        try:
            allowed.set()
            wait_for(lambda: not any(status.unsent for status in worker.positions()), "the rows")
            assert events.check()
        finally:
            worker.stop()


def test_an_index_begins_to_emit_behind_the_markers_of_a_server(kafka: str, tmp_path: Path) -> None:
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        events = Events("buckets", secrets.token_hex(4), writer, kafka)
        writer.write(events.rows.name, [(MARKER_KEY, b"\x01", None)]).result()
        events.send(20)
        settle(kafka, tmp_path, [events])
        rows = Topic(events.rows, random.Random(1))
        rows.records = [record for record in read(kafka, events.rows.name) if record[0] != MARKER_KEY]
        check_rows(events.found, rows, events.fickle.engine())
