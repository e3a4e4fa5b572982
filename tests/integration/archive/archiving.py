"""Archiving of all that is on topics, in the process of a test."""

import time
from pathlib import Path

from caraway.dataplane.archive.follower import Follower
from caraway.dataplane.topics.positions import TopicEnds
from caraway.graph.plan.model import TopicPlan
from tests.timeouts import deadline_in

TIMEOUT_S = 120.0


def archive_all(kafka: str, objects: Path, *topics: TopicPlan) -> dict[str, dict[int, int]]:
    """Archive all records of topics, in many small files; return the offsets behind them, by topic and partition."""
    ends = {name: dict(found) for name, found in TopicEnds(kafka).ends(topic.name for topic in topics).items()}
    reached: dict[str, dict[int, int]] = {}
    follower = Follower(
        kafka,
        str(objects),
        seconds=0.0,
        report=lambda report: reached.setdefault(report.topic, {}).update(report.positions),
    )
    try:
        follower.follow({topic.name: topic for topic in topics})
        deadline = deadline_in(TIMEOUT_S)
        while any(reached.get(name, {}).get(p, 0) < end for name, found in ends.items() for p, end in found.items()):
            assert time.monotonic() < deadline, (reached, ends)
            follower.step()
    finally:
        follower.close()
    return ends
