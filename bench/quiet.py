"""How quiet the machine is: for which part of the time a loop that does nothing is held up, and for how long."""

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

# Shorter gaps are the loop's own.
GAP_S = 0.0005


@dataclass(frozen=True)
class Quiet:
    """What held up the loops, by far the most of it other programs and the machine's owner.

    Attributes:
        part: Part of the time, 0 to 1.
        worst_ms: The longest gap, in milliseconds.
    """

    part: float
    worst_ms: float

    def __str__(self) -> str:
        """Say it."""
        held_up = f"held up for {self.part:.1%} of the time, by up to {self.worst_ms:.1f} ms"
        return f"Before, loops that do nothing were {held_up}."


def how_quiet(processes: int = 2, seconds: float = 3.0) -> Quiet:
    """Run so many loops side by side."""
    with ProcessPoolExecutor(processes) as pool:
        gaps = [gap for found in pool.map(_gaps, [seconds] * processes) for gap in found]
    return Quiet(sum(gaps) / (processes * seconds), 1e3 * max(gaps, default=0.0))


def _gaps(seconds: float) -> list[float]:
    last = time.perf_counter()
    end, gaps = last + seconds, list[float]()
    while last < end:
        now = time.perf_counter()
        if now - last > GAP_S:
            gaps.append(now - last)
        last = now
    return gaps
