"""Which of Spark's slots are spoken for.

Spark refuses a job in real-time mode whose stages exchange rows if it doesn't find all slots free that these need. One
of a single stage it takes in any case: its tasks wait in a queue, for good if the other jobs have no end either, and
the query says that it runs. So the engine keeps a book of its own, for all jobs alike.
"""

import os
import threading
from collections.abc import Callable

from caraway.errors import UnavailableError


class NoSlotsError(UnavailableError):
    """A job needs more slots than are free."""

    code = "no_slots"


def processors_of(master: str) -> int | None:
    """Return how many processors tasks share: those of this machine if Spark runs on it; None: that isn't known."""
    return os.cpu_count() if master.startswith("local") else None


class SlotBook:
    """The slots that jobs hold. Thread safe."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        """Share out what `capacity` says that there is; 0 if that isn't known yet, and then nothing is refused."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, Callable[[], bool]]] = {}

    def reserve(self, job: str, slots: int) -> None:
        """Speak for slots; whatever the job held before is free.

        Raises:
            NoSlotsError: They aren't to be had.
        """
        capacity = self._capacity()
        with self._lock:
            self._held = {name: (held, runs) for name, (held, runs) in self._held.items() if name != job and runs()}
            free = capacity - sum(held for held, _ in self._held.values())
            if capacity and slots > free:
                raise NoSlotsError(
                    f"it needs {slots} slots of Spark at once, and {max(free, 0)} of {capacity} are free. Raise N of "
                    "spark.master=local[N], or the cores that executors offer; idle slots cost next to nothing"
                )
            self._held[job] = slots, lambda: True

    def follow(self, job: str, runs: Callable[[], bool]) -> None:
        """Let a job keep its slots as long as it `runs`."""
        with self._lock:
            slots, _ = self._held[job]
            self._held[job] = slots, runs

    def release(self, job: str) -> None:
        """Let others have the slots of a job."""
        with self._lock:
            self._held.pop(job, None)
