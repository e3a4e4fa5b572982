"""Windows that close by the clock: a worker sends their rows, which hold in a database that begins anew."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.producer import TopicWriter
from tests.integration.index.flow import TIMEOUT_S, wait_for
from tests.integration.index.rows import CLOCKED, Events
from tests.unit.dataplane.index.oracle import SECOND

# After all windows of the events, which have times up to half a minute.
NOW_US = 50 * SECOND


@contextmanager
def following(kafka: str, folder: Path, events: Events) -> Iterator[IndexWorker]:
    """Yield a worker that has read all events, and sent what follows from them."""
    with IndexStore(folder, cache_bytes=1 << 20) as store:
        worker = IndexWorker(kafka, store)
        worker.start()
        try:
            worker.set_plans([events.plan])
            wait_for(
                lambda: [(sum(s.offsets.values()), s.unsent) for s in worker.positions()] == [(events.sent, False)],
                "all events",
            )
            yield worker
        finally:
            worker.stop()


@pytest.mark.filterwarnings("ignore:aggregate")
def test_windows_close_by_the_clock_once_their_rows_are_there(kafka: str, tmp_path: Path) -> None:
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        events = Events(CLOCKED, secrets.token_hex(4), writer, kafka)
        events.send(20)
        asset = events.plan.asset
        with following(kafka, tmp_path / "first", events) as worker:
            (goal,) = [status.offsets for status in worker.positions()]
            before = events.check()
            beyond = {partition: offset + 1 for partition, offset in goal.items()}
            assert not worker.advance_clock(asset, NOW_US, beyond).result(TIMEOUT_S)
            assert not worker.advance_clock(b"unknown-", NOW_US, {}).result(TIMEOUT_S)
            assert events.check() == before
            assert worker.advance_clock(asset, NOW_US, goal).result(TIMEOUT_S)
            events.found.now_us = NOW_US
            closed = events.check()
            assert closed > before
        # A database that begins anew knows no clock time, and sends nothing that contradicts what was sent.
        with following(kafka, tmp_path / "second", events) as worker:
            assert events.check() == closed
            events.send(10)
            wait_for(lambda: [sum(s.offsets.values()) for s in worker.positions()] == [events.sent], "more events")
            (goal,) = [status.offsets for status in worker.positions()]
            assert worker.advance_clock(asset, NOW_US, goal).result(TIMEOUT_S)
            assert events.check() > closed
