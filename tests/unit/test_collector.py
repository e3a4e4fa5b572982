"""Tests of the collector: objects that stay are left out of collections, and freed once they are dropped."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from caraway import collector
from caraway.collector import keep_what_is_here


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


class Node:
    """An object in a reference cycle, which only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_here_is_no_longer_looked_at() -> None:
    kept = Node()
    keep_what_is_here()
    assert not any(found is kept for found in gc.get_objects())
    assert gc.get_freeze_count() > 0


def test_what_was_kept_and_is_gone_is_freed_once_there_is_twice_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_alive", 0)
    node = Node()
    keep_what_is_here()
    seen = weakref.ref(node)
    del node
    gc.collect()
    keep_what_is_here()
    # A full collection now would stop all requests for little gain.
    assert seen() is not None
    # Some more than that, because other frozen objects may be gone by now.
    more = [[number] for number in range(int(gc.get_freeze_count() * collector.GROWTH))]
    keep_what_is_here()
    keep_what_is_here()
    assert seen() is None
    assert more
