"""The writer of a sink in a process of its own, and what the server lets it do."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from caraway.dataplane.addresses.limits import ConnectorLimits
from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.remote import RemoteWriter, check_sink
from caraway.dataplane.sinks.writer import Batch, Refusal, RetryLaterError, SignIn
from caraway.errors import CommitError, UnavailableError
from tests.unit.dataplane.sinks.world import SINK, plan_of, writing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="macOS has no means that Caraway uses; docs/operate/security.md says so"
    ),
]

LIMITS = ConnectorLimits(memory_mb=256)


@pytest.fixture(autouse=True)
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sinks written by a writer to nothing."""
    monkeypatch.setattr(type(SINK.connector), "writer", "tests.unit.dataplane.confined.hostile:Writer")


@contextmanager
def opened(**more: Any) -> Iterator[RemoteWriter]:
    writer = RemoteWriter(writing(plan_of(), **more), LIMITS)
    try:
        yield writer
    finally:
        writer.close()


def batch(*keys: bytes) -> Batch:
    changes = [Change(key, None, Row(1, (key.decode(), 1.0, None)), 1, 0, n) for n, key in enumerate(keys)]
    return Batch(changes, {0: len(keys)})


def test_a_writer_tells_what_it_is_and_writes() -> None:
    with opened() as writer:
        assert (writer.guarantee, writer.remembers) == ("exactly once", True)
        assert writer.positions() == {0: 7, -1: 3}
        given = batch(b"a", b"b")
        writer.write(given)
        assert given.sent == 2


def test_refused_changes_become_those_of_the_batch() -> None:
    refused: list[Refusal] = []
    with opened(refuse=refused.extend) as writer:
        given = batch(b"a", b"bad", b"b")
        writer.write(given)
        assert refused == [Refusal(given.changes[1], "no")]


def test_a_change_becomes_one_dead_letter_however_often_it_is_refused() -> None:
    refused: list[Refusal] = []
    with opened(refuse=refused.extend) as writer:
        given = batch(b"twice")
        writer.write(given)
        assert refused == [Refusal(given.changes[0], "no")]
        again = batch(b"twice")
        writer.write(again)
        assert refused == [Refusal(given.changes[0], "no"), Refusal(again.changes[0], "no")]


def test_a_change_that_is_in_no_batch_is_refused_by_nobody() -> None:
    refused: list[Refusal] = []
    with opened(refuse=refused.extend) as writer:
        with pytest.raises(UnavailableError, match="isn't in the batch"):
            writer.write(batch(b"foreign"))
        assert refused == []


def test_a_busy_system_is_asked_again_for_the_rest() -> None:
    pauses: list[float] = []
    with opened(pause=pauses.append) as writer:
        given = batch(b"a", b"busy", b"b")
        with pytest.raises(RetryLaterError, match="it is busy"):
            writer.write(given)
        assert (given.sent, pauses) == (2, [2.5])
        writer.write(given)
        assert given.sent == 3


def test_a_server_that_lost_the_lease_writes_nothing_more() -> None:
    with opened(keep=lambda: False) as writer, pytest.raises(UnavailableError, match="another server"):
        writer.write(batch(b"lost"))


def test_a_library_that_fails_ends_its_own_process_only() -> None:
    with opened() as writer, opened() as other:
        with pytest.raises(UnavailableError, match=r"its process has ended \(SIGABRT\)"):
            writer.write(batch(b"abort"))
        other.write(batch(b"a"))


def test_the_check_of_a_commit_runs_in_a_process_too() -> None:
    with pytest.raises(CommitError, match="isn't there for me"):
        check_sink(plan_of(), SignIn(resolve=str), LIMITS, 60.0)
