"""The book of Spark's slots: which jobs hold how many.

If a job in real-time mode exchanges rows between stages, Spark refuses it unless all slots of these stages are free.
Spark accepts a job with a single stage in any case: without free slots its tasks wait in a queue, possibly for ever,
while the query reports that it runs. So the engine counts the slots of all jobs itself.
"""

import threading
from collections.abc import Callable

from caraway.errors import UnavailableError
from caraway.process.estimates import counted


class NoSlotsError(UnavailableError):
    """A job needs more slots than are free."""

    code = "no_slots"


class SlotBook:
    """The slots that jobs hold. Thread safe."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        """Divide the number of slots that `capacity` returns; 0 means unknown, and then no job is refused."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, Callable[[], bool]]] = {}
        self._offered = 0

    def reserve(self, job: str, slots: int) -> None:
        """Reserve slots for a job in place of those that it held before.

        Raises `NoSlotsError` if too few slots are free.
        """
        capacity = self._capacity()
        with self._lock:
            self._offered = capacity
            self._held.pop(job, None)
            free = self._free()
            if capacity and slots > free:
                raise NoSlotsError(
                    f"it needs {counted(slots, 'slot')} of Spark at once, and {max(free, 0)} of {capacity} are free. "
                    "Delete branches or pipelines that nobody needs: their jobs free their slots. Raise N of "
                    "spark.master=local[N], or the cores that executors offer, only if processor and memory allow it: "
                    "each running job takes a thread per slot and some processor time even while it is idle"
                )
            self._held[job] = slots, lambda: True

    def free(self) -> int | None:
        """Return how many slots are free, as far as is known; None before the first job."""
        with self._lock:
            return max(0, self._free()) if self._offered else None

    def follow(self, job: str, runs: Callable[[], bool]) -> None:
        """Keep the slots of a job reserved as long as `runs`, which must be quick, returns true."""
        with self._lock:
            slots, _ = self._held[job]
            self._held[job] = slots, runs

    def release(self, job: str) -> None:
        """Free the slots of a job."""
        with self._lock:
            self._held.pop(job, None)

    def _free(self) -> int:
        self._held = {name: (held, runs) for name, (held, runs) in self._held.items() if runs()}
        return self._offered - sum(held for held, _ in self._held.values())
