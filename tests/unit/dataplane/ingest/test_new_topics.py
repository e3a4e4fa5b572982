"""A source whose dataset was just defined: its topic comes into being while the worker opens."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from typing_extensions import override

from caraway.dataplane.ingest.marks import Starts
from caraway.dataplane.sources.worker import LOOKS_S
from caraway.errors import UnavailableError
from tests.unit.dataplane.sources.test_sources import World, record


@dataclass
class Slow(World):
    """A world whose topics are seen at an instant of its clock."""

    seen_at: float = 0.0

    @override
    def ends(self, names: Sequence[str]) -> Starts:
        return super().ends(names) if self.now >= self.seen_at else {}


def test_a_topic_may_come_into_being_while_the_source_opens() -> None:
    world = Slow({"0": [record("a")]}, seen_at=sum(LOOKS_S) - 0.01)
    worker = world.worker()
    world.read_all(worker)
    assert worker.rows == 1


def test_a_topic_that_does_not_come_is_an_error() -> None:
    world = Slow({"0": [record("a")]}, seen_at=sum(LOOKS_S) + 0.01)
    worker = world.worker()
    with pytest.raises(UnavailableError, match="isn't there yet"):
        worker.step()
    world.now = world.seen_at
    world.read_all(worker)
    assert worker.rows == 1
