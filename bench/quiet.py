"""A measure of how quiet the machine is: the part of the time in which an idle loop is held up, and for how long."""

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

# Least gap that counts; the loop itself causes shorter ones.
GAP_S = 0.0005


@dataclass(frozen=True)
class Quiet:
    """The gaps of the loops, most of which other programs and the machine's owner cause.

    Attributes:
        part: Part of the time, 0 to 1.
        worst_ms: The longest gap, in milliseconds.
    """

    part: float
    worst_ms: float

    def __str__(self) -> str:
        """Return the two numbers as text."""
        held_up = f"held up for {self.part:.1%} of the time, by up to {self.worst_ms:.1f} ms"
        return f"Before, loops that do nothing were {held_up}."


def how_quiet(processes: int = 2, seconds: float = 3.0) -> Quiet:
    """Run `processes` loops side by side, and return their gaps."""
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
