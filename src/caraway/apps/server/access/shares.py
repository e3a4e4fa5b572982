"""Limits for one caller: concurrent requests, requests per second, and places of requests that take long.

Callers are distinguished by their tokens. If no tokens are needed, all callers share one limit.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

from caraway.errors import BusyError

# The most callers whose rate of requests is remembered. If there are more, the caller whose last request is the oldest
# is forgotten, and begins anew with the number of requests that is allowed in a second.
MAX_KNOWN = 10_000
# The part of the places for requests that take long which one token may take, so that some are left for others.
TOKEN_SHARE = 0.75
# The id of the token of the request under way, "" if no token is needed.
TOKEN: ContextVar[str] = ContextVar("token", default="")


@dataclass(slots=True)
class _Bucket:
    """The number of requests that a caller may make at once, and the time at which it was computed."""

    left: float
    at: float


class Shares:
    """Counts the requests under way and those of the last second, by caller. For one event loop."""

    def __init__(
        self, concurrency: int = 0, requests_per_second: float = 0.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Limit both numbers; 0 means no limit."""
        self._concurrency = concurrency
        self._rate = requests_per_second
        self._clock = clock
        self._under_way: dict[str, int] = {}
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def enter(self, caller: str) -> None:
        """Count a request that begins; `leave` must follow.

        Raises `BusyError` if the caller has too many requests under way, or made too many within the last second.
        """
        under_way = self._under_way.get(caller, 0)
        if 0 < self._concurrency <= under_way:
            raise BusyError(
                f"{under_way} requests of this caller are under way, and no caller may have more at a time "
                "(server.concurrency_per_token); try again in a moment"
            )
        if self._rate > 0:
            self._count(caller)
        self._under_way[caller] = under_way + 1

    def leave(self, caller: str) -> None:
        """Count a request that has ended."""
        left = self._under_way[caller] - 1
        if left:
            self._under_way[caller] = left
        else:
            del self._under_way[caller]

    def _count(self, caller: str) -> None:
        now, most = self._clock(), max(1.0, self._rate)
        bucket = self._buckets.setdefault(caller, _Bucket(most, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_KNOWN:
            self._buckets.popitem(last=False)
        bucket.left, bucket.at = min(most, bucket.left + (now - bucket.at) * self._rate), now
        if bucket.left < 1:
            raise BusyError(
                f"this caller makes more than {self._rate:g} requests a second (server.requests_per_second_per_token); "
                "try again in a moment"
            )
        bucket.left -= 1


class Places:
    """Counts the requests of one kind that take long, all of them and those of each token. For one event loop."""

    def __init__(self, most: int, what: str) -> None:
        """Have places for `most` requests; `what` names them in errors."""
        self._most = most
        self._what = what
        self._taken: Counter[str] = Counter()

    def enter(self) -> Callable[[], None]:
        """Take a place for the request under way, and return the function that gives the place back.

        Raises `BusyError` if no place is left, or if the token of the request has its share of the places.
        """
        token = TOKEN.get()
        # Without tokens nobody else is there for whom places could be left.
        share = int(self._most * TOKEN_SHARE) if token else self._most
        taken, own = self._taken.total(), self._taken[token]
        if taken >= self._most or own >= share:
            raise BusyError(
                f"{taken} {self._what} already, {own} of them of this caller; there are {self._most} places for them, "
                f"of which one caller may take {share}; try again in a moment"
            )
        self._taken[token] += 1
        return partial(self._leave, token)

    def _leave(self, token: str) -> None:
        self._taken[token] -= 1
        if not self._taken[token]:
            del self._taken[token]
