"""The seconds that the steps of an offline query take."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ, LOOKUPS, EXPRESSIONS, EXTRACTORS = "read", "lookups", "expressions", "extractors"
WRITE, SPARK = "write", "spark"


class Stopwatch:
    """Adds up the seconds of steps. The time of a step within another one counts for the inner one only."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Have no seconds yet; `clock` returns the time in seconds."""
        self._clock = clock
        self._seconds: dict[str, float] = {}
        # For each step that is under way, the seconds of the steps within it, which are subtracted from its own.
        self._inner: list[float] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Take the time of a step until its end."""
        begun = self._clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = self._clock() - begun
            self._seconds[name] = self._seconds.get(name, 0.0) + whole - self._inner.pop()
            if self._inner:
                self._inner[-1] += whole

    def taken(self) -> dict[str, float]:
        """Return the seconds of each step since the last call."""
        found, self._seconds = self._seconds, {}
        return {name: round(seconds, 6) for name, seconds in found.items()}
