"""Rows that wait for the archive are counted, and never markers alone, which heartbeats write for ever."""

import secrets
import time
from pathlib import Path

import pytest

from caraway.dataplane.archive.follower import Follower
from caraway.dataplane.archive.store.model import TableReport
from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import TopicKind, TopicPlan
from tests.integration.index.flow import TIMEOUT_S, Flow
from tests.timeouts import deadline_in
from tests.unit.dataplane.index.naive import SCHEMA

SECONDS = 30.0


@pytest.mark.parametrize("kind", [TopicKind.EVENTS, TopicKind.AGGREGATE_INPUTS])
def test_rows_that_wait_in_blocks_are_estimated_by_the_last_messages(
    kind: TopicKind, kafka: str, tmp_path: Path
) -> None:
    topic = f"backlog.{secrets.token_hex(6)}"
    ensure_topics(kafka, [topic], 1)
    plan = TopicPlan(dataset="D", name=topic, kind=kind, schema=SCHEMA, disorder_us=0)
    row = RecordCodec(SCHEMA).encode_value(op=PUT, time_us=0, ingested_us=0, row=["k", 1, None, None])
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        writer.write(topic, [(None, block_of([row] * 500), None)] * 4).result(TIMEOUT_S)
    source = ArchivedTopics(kafka, str(tmp_path), cuts_now(kafka, [topic]))
    assert source.rows(plan) == 2000


def test_markers_alone_leave_no_backlog(kafka: str, tmp_path: Path) -> None:
    topic = f"backlog.{secrets.token_hex(6)}"
    ensure_topics(kafka, [topic], 2)
    plan = TopicPlan(dataset="D", name=topic, kind=TopicKind.VERSIONS, schema=SCHEMA, disorder_us=0)
    now, reports = [0.0], list[TableReport]()
    follower = Follower(kafka, str(tmp_path), SECONDS, report=reports.append, clock=lambda: now[0])

    def backlog() -> int:
        """Return how many messages a table lacks, as `GET /archive` computes it."""
        positions = reports[-1].positions if reports else {}
        return sum(end - positions.get(p, 0) for p, end in TopicEnds(kafka).ends([topic])[topic].items())

    def step_until(wanted: int, tick: float) -> None:
        """Step until so many messages wait; the clock goes on by so many seconds at each step."""
        deadline = deadline_in(TIMEOUT_S)
        while backlog() != wanted:
            assert time.monotonic() < deadline, f"{backlog()} messages wait instead of {wanted}"
            follower.step()
            now[0] += tick

    try:
        follower.follow({topic: plan})
        with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
            flow = Flow(writer, topic)
            flow.send(10)
            step_until(10, tick=0.0)
            step_until(0, tick=SECONDS)
            assert reports[-1].size.rows == 10
            # The clock stands still, so the table isn't written.
            writer.write_to_all(topic, MARKER_KEY, secrets.token_bytes(16)).result(TIMEOUT_S)
            assert backlog() == 2
            step_until(0, tick=0.0)
            # Rows with markers behind them wait for the table.
            flow.send(10)
            writer.write_to_all(topic, MARKER_KEY, secrets.token_bytes(16)).result(TIMEOUT_S)
            for _ in range(5):
                follower.step()
            assert backlog() == 12
            step_until(0, tick=SECONDS)
            assert reports[-1].size.rows == 20
    finally:
        follower.close()
