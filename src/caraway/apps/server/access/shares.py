"""Limits for one caller: concurrent requests, and requests per second.

Callers are distinguished by their tokens. If no tokens are needed, all callers share one limit.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from caraway.errors import BusyError

# The most callers whose rate of requests is remembered. If there are more, the caller whose last request is the oldest
# is forgotten, and begins anew with the number of requests that is allowed in a second.
MAX_KNOWN = 10_000


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
