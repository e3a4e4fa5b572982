"""Tests of repeated requests: the keys of their headers, and how many of them have topics read at a time."""

import asyncio
import threading
from collections.abc import Collection

import pytest

from caraway.dataplane.ingest.marks import Written
from caraway.dataplane.ingest.requests import KEPT_MS, MAX_KEY_LENGTH, MOST_WAITING, READERS, ReadingBack, RequestKey
from caraway.errors import BusyError, InvalidInputError

FOUND: Written = frozenset({("Sales", "0")})


@pytest.mark.parametrize(
    ("name", "elapsed"),
    [("", None), ("k" * (MAX_KEY_LENGTH + 1), None), ("k", "-1"), ("k", "1.5"), ("k", "²"), ("k", "")],
)
def test_headers_that_are_none_are_refused(name: str, elapsed: str | None) -> None:
    with pytest.raises(InvalidInputError):
        RequestKey.parse(name, elapsed, b"", "ann")


def test_no_header_has_topics_read_for_longer_than_a_day() -> None:
    assert RequestKey.parse("k", str(KEPT_MS), b"", "ann").elapsed_ms == KEPT_MS
    for elapsed in (str(KEPT_MS + 1), "9" * 15):
        with pytest.raises(InvalidInputError, match=r"a day\): look up whether its rows are there"):
            RequestKey.parse("k", elapsed, b"", "ann")


def test_a_key_is_that_of_an_account_and_never_that_of_a_dead_letter() -> None:
    key = RequestKey.parse("dead-letter-0-7", None, b"", "ann").key
    assert key == RequestKey.parse("dead-letter-0-7", "5", b"", "ann").key
    assert key != RequestKey.parse("dead-letter-0-7", None, b"", "bob").key
    assert not key.startswith("dead-letter-")
    assert "ann" not in key


class Topics:
    """Topics that are read until `answer` is set; they know how many are read at a time, and for whom."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.now: list[str] = []
        self.most: list[list[str]] = []
        self._lock = threading.Lock()

    def read(self, topics: Collection[str], request: RequestKey) -> Written:
        assert topics == ["t"]
        with self._lock:
            self.now.append(request.account)
            self.most.append(sorted(self.now))
        assert self.answer.wait(60)
        with self._lock:
            self.now.remove(request.account)
        return FOUND


def test_a_flood_of_repeated_requests_takes_no_threads_of_others() -> None:
    topics = Topics()
    reading = ReadingBack(topics.read)

    async def one(account: str, number: int) -> Written | BusyError:
        try:
            return await reading.written(["t"], RequestKey(f"{number}", KEPT_MS, b"", account))
        except BusyError as error:
            return error

    async def flood() -> list[Written | BusyError]:
        asked = [asyncio.create_task(one("mallory", number)) for number in range(50)]
        asked += [asyncio.create_task(one(account, 0)) for account in ("ann", "bob")]
        await asyncio.sleep(0)
        # The threads that all handlers share are free meanwhile.
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 60) == "free"
        topics.answer.set()
        return await asyncio.gather(*asked)

    answers = asyncio.run(flood())
    refused = [answer for answer in answers if isinstance(answer, BusyError)]
    # One of mallory's is read, and so many wait.
    assert len(refused) == 50 - 1 - MOST_WAITING
    assert answers[-2:] == [FOUND, FOUND]
    assert all(together.count("mallory") <= 1 and len(together) <= READERS for together in topics.most)
    assert len(topics.most) == 1 + MOST_WAITING + 2


def test_a_failure_gives_the_turn_to_the_next() -> None:
    def fail(topics: Collection[str], request: RequestKey) -> Written:
        raise InvalidInputError(request.key)

    async def both() -> list[object]:
        reading = ReadingBack(fail)
        asked = (reading.written([], RequestKey(str(number), 1, b"", "ann")) for number in range(2))
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [str(error) for error in asyncio.run(both())] == ["0", "1"]
