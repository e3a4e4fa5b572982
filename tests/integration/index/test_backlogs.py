"""A topic with a large backlog doesn't delay the records of other topics, and loses none of its own."""

import secrets
import statistics
import time
from dataclasses import replace
from pathlib import Path

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.producer import TopicWriter
from tests.integration.index.flow import PLANS, TIMEOUT_S, Flow, wait_for, wait_until_caught_up
from tests.timeouts import scaled

BACKLOG = 40_000
# The index may take so many seconds, by its median, until it has a record of a topic without a backlog.
DELAY_S = 0.1
LEAST_MEASURED = 10


def test_a_backlog_delays_no_other_topic(kafka: str, tmp_path: Path) -> None:
    busy, small = (f"index.{name}.{secrets.token_hex(6)}" for name in ("busy", "small"))
    ensure_topics(kafka, [busy, small], 3)
    busy_plans = [replace(plan, topic=busy) for plan in PLANS]
    small_plan = replace(PLANS[0], topic=small, asset=b"flow---3")
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer, IndexStore(tmp_path / "index") as store:
        backlog, trickle = Flow(writer, busy), Flow(writer, small, seed=1)
        backlog.send(BACKLOG)
        trickle.send(1)
        worker, reader = IndexWorker(kafka, store), IndexReader(store)
        worker.set_plans([*busy_plans, small_plan])
        worker.start()
        try:
            wait_until_caught_up(worker, small, 1, indexes=1)
            delays = []
            while any(s.topic == busy and s.lag != 0 for s in worker.positions()):
                started = time.monotonic()
                trickle.send(1)
                wait_until_caught_up(worker, small, len(trickle.sent), indexes=1)
                delays.append(time.monotonic() - started)
            assert len(delays) >= LEAST_MEASURED
            assert statistics.median(delays) < scaled(DELAY_S), sorted(delays)
            wait_until_caught_up(worker, busy, BACKLOG)
            wait_for(lambda: all(s.lag == 0 for s in worker.positions()), "no lag")
            backlog.check(reader, busy_plans)
            trickle.check(reader, [small_plan])
        finally:
            worker.stop()
