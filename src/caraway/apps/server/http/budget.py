"""A bound on the memory that the requests under way may take, over all connections.

The memory of a request is that of its body: the bytes that came, the decompressed bytes, and the values that they are
made into. A request that doesn't fit is refused at once (429), so that no request waits while it holds memory that
others need.
"""

from collections import Counter

from caraway.errors import BusyError

# The most bytes that all requests under way hold together, unless server.requests_memory_mb sets another number. The
# largest request needs some 150 MB for its text and values. Most requests need less than a thousandth of that.
MAX_BYTES = 256 * 1024 * 1024
# A request that holds up to SMALL_BYTES may use the whole budget. One that needs more bytes is refused if all requests
# would then hold more than LARGE_SHARE of the budget, so that slow uploads of large bodies leave memory for small
# requests.
SMALL_BYTES = 64 * 1024
LARGE_SHARE = 0.75
# The part of LARGE_SHARE that the requests of one caller may hold, while requests of other callers hold memory, too.
CALLER_SHARE = 0.75


class Budget:
    """The memory that requests may take. An instance serves one event loop."""

    def __init__(self, max_bytes: int = MAX_BYTES, *, lends: bool = True) -> None:
        """Bound the memory of all requests under way to `max_bytes`.

        With `lends`, a caller may use more than a caller's share while nobody else holds memory. Then others have to
        wait until this caller's requests have ended.
        """
        self._lends = lends
        self._max_bytes = max_bytes
        self._large_bytes = int(max_bytes * LARGE_SHARE)
        self._used = 0
        self._by_caller: Counter[str] = Counter()

    @property
    def used(self) -> int:
        """The memory that is held at the moment, in bytes."""
        return self._used

    def take(self, caller: str, size: int, held: int) -> None:
        """Take `size` bytes for a request that holds `held` already.

        Raises `BusyError` if too much is held by all requests, or by those of this caller.
        """
        large = held + size > SMALL_BYTES
        limit = self._large_bytes if large else self._max_bytes
        # A request goes on if no other request holds memory, even beyond the budget. The limits of a single request,
        # such as MAX_BODY_BYTES, bound what it needs.
        if self._used > held and self._used + size > limit:
            raise BusyError(
                f"the requests under way take {self._used >> 20:,} MiB of memory, and this one needs more than is left "
                "of what they may take; try again in a moment"
            )
        of_caller = self._by_caller[caller] + size
        alone = len(self._by_caller) <= 1 if self._lends else self._used <= held
        if large and not alone and of_caller > self._large_bytes * CALLER_SHARE:
            raise BusyError(
                f"your requests under way take {of_caller >> 20:,} MiB of memory, more than the share of one caller; "
                "send fewer of them at a time, and read their answers"
            )
        self._used += size
        self._by_caller[caller] = of_caller

    def give_back(self, caller: str, size: int) -> None:
        """Return memory that a request has taken to the budget."""
        self._used -= size
        self._by_caller[caller] -= size
        if self._by_caller[caller] <= 0:
            del self._by_caller[caller]


class Hold:
    """The memory that one request holds of a budget."""

    __slots__ = ("_budget", "_caller", "_size")

    def __init__(self, budget: Budget, caller: str = "") -> None:
        """Create a hold of no memory yet."""
        self._budget = budget
        self._caller = caller
        self._size = 0

    def grow(self, size: int) -> None:
        """Hold `size` bytes more. Raises `BusyError` if the budget has fewer bytes left."""
        if size > 0:
            self._budget.take(self._caller, size, self._size)
            self._size += size

    def release(self) -> None:
        """Return all of the memory to the budget."""
        if self._size:
            self._budget.give_back(self._caller, self._size)
            self._size = 0
