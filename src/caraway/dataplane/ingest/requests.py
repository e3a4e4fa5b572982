"""Repeated requests: a request with an idempotency key is carried out once.

Each record has the key of its request and its row number in a header. A running server remembers its answers; after a
restart it reads from the topics which rows of a request have been written already.
"""

import asyncio
import time
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from caraway.dataplane.ingest.marks import Marks, Written, read_marks, starts_since
from caraway.errors import BusyError, ConflictError, InvalidInputError

HEADER = "caraway-request"
MAX_KEY_LENGTH = 200
# The longest time after its first attempt at which a request with a key may be sent again. This bounds the part of the
# topics that the server has to read for the request.
KEPT_MS = 24 * 60 * 60 * 1000
# The topics are read for `READERS` requests at a time, in threads of their own, so that other work isn't left without
# threads. An account can have one of these requests at a time, and `MOST_WAITING` others that wait for it.
READERS = 2
MOST_WAITING = 16
# Keys begin with a hash of the account, so that equal keys of two accounts differ. Each record of a request has the
# key, so the hash is short. Six bytes are enough, since only an administrator creates accounts.
ACCOUNT_BYTES = 6
# The most answers to requests with a key that a server remembers; the oldest are forgotten first. Each takes a few
# hundred bytes, so all take a few megabytes.
MAX_ANSWERS = 10_000
# A repeated request says how long ago its first attempt was. The topics are read from this many milliseconds earlier
# on: a client's clock may run at a wrong rate, and a request waits in queues before the server reads its own clock.
SLACK_MS = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An idempotency key.

    Attributes:
        key: The key, which no other account can use.
        elapsed_ms: The time since the first attempt, in milliseconds; None in the first attempt itself.
        digest: A hash of the request's body.
        account: The account that sends the request.
    """

    key: str
    elapsed_ms: int | None
    digest: bytes
    account: str = ""

    @classmethod
    def parse(cls, key: str, elapsed: str | None, digest: bytes, account: str) -> "RequestKey":
        """Return the key that the two headers of a request contain.

        Raises `InvalidInputError` if the key is empty or too long, or the time isn't a number of milliseconds of at
        most a day.
        """
        if not key or len(key) > MAX_KEY_LENGTH:
            raise InvalidInputError(f"Idempotency-Key has {len(key)} characters; 1 to {MAX_KEY_LENGTH} are expected")
        if elapsed is not None and not (elapsed.isascii() and elapsed.isdigit() and len(elapsed) < 16):
            raise InvalidInputError(
                f"Caraway-Elapsed-Ms is {elapsed[:40]!r}; a whole number of milliseconds is expected"
            )
        elapsed_ms = None if elapsed is None else int(elapsed)
        if elapsed_ms is not None and elapsed_ms > KEPT_MS:
            raise InvalidInputError(
                f"Caraway-Elapsed-Ms is {elapsed_ms}, and rows of a request are known for {KEPT_MS} (a day): look up "
                "whether its rows are there, and send those that are missing with a new Idempotency-Key"
            )
        of = urlsafe_b64encode(blake2b(account.encode(), digest_size=ACCOUNT_BYTES).digest()).decode()
        return cls(f"{of}:{key}", elapsed_ms, digest, account)

    def marks(self, written: Written) -> Marks:
        """Return the marks of the request's records."""
        return Marks(header=HEADER, key=self.key, written=written)


class Answers(Generic[T]):
    """Answers by key, finished or on their way, at most `limit` of them."""

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        """Start without answers."""
        self._limit = limit
        self._tasks: OrderedDict[tuple[str, ...], tuple[bytes, asyncio.Task[T]]] = OrderedDict()

    async def once(self, scope: tuple[str, ...], digest: bytes, make: Coroutine[Any, Any, T]) -> T:
        """Return the answer known under `scope`, or that of `make`, which is then remembered unless it fails.

        Raises `ConflictError` if the key was used with another body.
        """
        known = self._tasks.get(scope)
        if known is not None:
            make.close()
            if known[0] != digest:
                raise ConflictError("this Idempotency-Key was used with another body; a new request needs a new key")
            return await asyncio.shield(known[1])
        # The work runs in its own task, so it continues if the client disconnects, and the answer is there for the next
        # attempt.
        task = asyncio.get_running_loop().create_task(make)
        self._tasks[scope] = (digest, task)
        task.add_done_callback(lambda done: self._settle(scope, done))
        return await asyncio.shield(task)

    def _settle(self, scope: tuple[str, ...], task: "asyncio.Task[T]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._tasks.pop(scope, None)
        while len(self._tasks) > self._limit:
            self._tasks.popitem(last=False)


class ReadingBack:
    """Finds the rows of repeated requests on the topics, for a few requests at a time. For one event loop."""

    def __init__(self, read: Callable[[Collection[str], RequestKey], Written]) -> None:
        """Find rows by `read`, which blocks."""
        self._read = read
        self._threads = ThreadPoolExecutor(READERS, "read-back")
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    async def written(self, topics: Collection[str], request: RequestKey) -> Written:
        """Return the rows of a request that an earlier attempt wrote to some topics.

        Raises:
            BusyError: Too many requests of the account wait.
            UnavailableError: Kafka doesn't answer.
        """
        account = request.account
        if self._waiting[account] > MOST_WAITING:
            raise BusyError(
                f"{self._waiting[account]} repeated requests of this account wait until the server has read which of "
                "their rows are there; try again in a moment"
            )
        self._waiting[account] += 1
        try:
            async with self._turns.setdefault(account, asyncio.Lock()):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._read, topics, request)
        finally:
            self._waiting[account] -= 1
            if not self._waiting[account]:
                del self._waiting[account], self._turns[account]


def read_back(bootstrap_servers: str, topics: Collection[str], request: RequestKey) -> Written:
    """Return the rows of a request that an earlier attempt wrote. Blocks.

    Raises `UnavailableError` if Kafka doesn't answer.
    """
    if request.elapsed_ms is None:
        return frozenset()
    since_ms = max(0, int(time.time() * 1000) - request.elapsed_ms - SLACK_MS)
    return read_marks(bootstrap_servers, starts_since(topics, since_ms), header=HEADER, key=request.key)
