"""Tests of requests that are sent again: each row is on the topic once, even if the server is killed in between."""

import concurrent.futures
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import httpx2
import msgspec
import pytest

from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.state.permissions import Grant, Mode
from tests.integration.server.guarded import Guarded
from tests.integration.server.server_process import RecordCount, ServerProcess, records
from tests.unit.compute.query import garden

# Rows of a request, of at most 100,000. A quick machine takes two seconds for so many, which is many slices of work to
# kill the server between.
ROWS = 96_000
# The server is killed once so many rows are on the topic.
AFTER_ROWS = 20_000
# How often a request is sent until the server is killed within one.
TRIES = 5


def readings(count: int, **more: object) -> list[dict[str, object]]:
    """Return rows of which every hundredth doesn't fit."""
    return [
        {"pot": number, "moisture": "dry" if number % 100 == 0 else number / 7, "at": 1_700_000_000 + number, **more}
        for number in range(count)
    ]


def pots_on(kafka: str, topic: str) -> list[int]:
    return [msgspec.msgpack.decode(value)[7][0] for value in records(kafka, topic)]


def letters(kafka: str, key: str) -> int:
    return sum(key.encode() in value for value in records(kafka, DEAD_LETTERS))


# A kill after most of the rows can't be timed: since rows travel in blocks, the last ones are sent within one slice.
def test_a_killed_server_takes_each_row_once(own_server: Callable[[], ServerProcess], kafka: str) -> None:
    server = own_server()
    server.commit(garden.graph())
    topic = server.topic("Readings")
    for _ in range(TRIES):
        before = Counter(pots_on(kafka, topic))
        marker = f"killed {time.time_ns()}"
        rows = readings(ROWS, **{marker: 1})
        key = {"Idempotency-Key": marker}
        first = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(1) as thread, closing(RecordCount(kafka, topic)) as count:
            request = thread.submit(server.log, "readings", rows, key)
            server.run_in_slices_until(lambda: count() >= before.total() + AFTER_ROWS)  # noqa: B023 (called here)
            server.kill()
            try:
                request.result()
            except httpx2.TransportError:
                assert count() >= before.total() + AFTER_ROWS
                break
        # On a busy machine, a slice may be long enough for the rest of the rows and for the answer.
        server = own_server()
    else:
        pytest.fail("the server answered each time before it was killed")
    server = own_server()
    elapsed = int(1000 * (time.monotonic() - first))
    again = server.log("readings", rows, {**key, "Caraway-Elapsed-Ms": str(elapsed)}).json()
    assert (again["accepted"], again["rejected"]) == (ROWS - ROWS // 100, ROWS // 100)
    once = server.log("readings", rows, {**key, "Caraway-Elapsed-Ms": "1"}).json()
    assert once == again
    added = Counter(pots_on(kafka, topic)) - before
    assert added == Counter(number for number in range(ROWS) if number % 100)
    assert letters(kafka, marker) == ROWS // 100


def test_a_key_is_for_one_body(server: ServerProcess) -> None:
    key = {"Idempotency-Key": f"one body {time.time_ns()}"}
    assert server.log("readings", readings(2)[1:], key).status_code == 200
    assert server.log("readings", readings(2)[1:], key).status_code == 200
    other = server.log("readings", readings(3)[1:], key)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


def test_a_repeat_that_was_never_here_is_taken(server: ServerProcess) -> None:
    key = {"Idempotency-Key": f"new {time.time_ns()}", "Caraway-Elapsed-Ms": "5000"}
    assert server.log("readings", readings(2)[1:], key).json()["accepted"] == 1


def test_the_same_key_of_another_account_is_another_key(guarded_garden: Guarded, kafka: str) -> None:
    server, topic = guarded_garden.server, guarded_garden.server.topic("Readings")
    writer = Grant(modes=frozenset({Mode.WRITE_DATA, Mode.READ_DEFINITION}))
    tokens = [guarded_garden.token(f"repeats-{name}", writer)[1] for name in ("ann", "bob")]
    pot, key = time.time_ns(), f"guessed {time.time_ns()}"
    row = [{"pot": pot, "moisture": 0.5, "at": 1_700_000_000}]
    for token in tokens:
        for elapsed in ({}, {"Caraway-Elapsed-Ms": "60000"}):
            headers = {"Idempotency-Key": key, "Authorization": f"Bearer {token}", **elapsed}
            assert server.log("readings", row, headers).json()["accepted"] == 1
    assert Counter(pots_on(kafka, topic))[pot] == len(tokens)
