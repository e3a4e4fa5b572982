"""How long tests wait for a condition: a limit is the time that it may take on a quiet machine, times two factors.

The first one is the environment variable `CARAWAY_TEST_PATIENCE`. If it isn't set, the first process of a run measures
how long a fixed piece of work takes, and hands the factor on to its own processes. The second one is how many threads
want each core when the wait begins, as the system counts them: a run has services beside it, and other programs come
and go. A limit only costs time when a test fails, so the factors are at least 1, and err on the long side.
"""

import hashlib
import os
import time

import pytest

_VARIABLE = "CARAWAY_TEST_PATIENCE"
# Hashing this much takes 0.1 s on the machine on which the limits were chosen; with less, one interruption would count.
_BYTES = 64 * 1024 * 1024
_USUAL_SECONDS = 0.1
_USUAL_CORES = 2
# A machine that is eight times slower needs more than longer timeouts.
_MOST = 8.0


def _measured() -> float:
    """Return how many times slower than usual this machine is just now."""
    block = bytes(1024 * 1024)
    begin = time.perf_counter()
    digest = hashlib.blake2b()
    for _ in range(_BYTES // len(block)):
        digest.update(block)
    slower = (time.perf_counter() - begin) / _USUAL_SECONDS
    # Each test runs a broker, a JVM and its own process side by side.
    return min(_MOST, max(1.0, slower) * max(1.0, _USUAL_CORES / cores()))


def cores() -> int:
    """Return how many cores this process may use."""
    # Not every system can bind a process to some of them.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _factor() -> float:
    told = os.environ.get(_VARIABLE)
    factor = float(told) if told else _measured()
    # Processes that pytest starts have the same one.
    os.environ[_VARIABLE] = f"{factor:.2f}"
    return factor


FACTOR = _factor()


def _crowd() -> float:
    """Return how many threads want each core, over the last minute; at least 1."""
    return max(1.0, os.getloadavg()[0] / cores())


def scaled(seconds: float) -> float:
    """Return a limit in seconds for this machine as it is now, from that for a quiet one."""
    return seconds * min(_MOST, FACTOR * _crowd())


def scaled_now(seconds: float) -> float:
    """Return a limit for what was just measured: the machine's pace counts at this moment, if it is slower than before.

    Processor time grows too if other processes share the processor's caches.
    """
    return seconds * max(FACTOR, _measured())


def deadline_in(seconds: float) -> float:
    """Return when something must have happened that takes so many seconds on a quiet machine, by `time.monotonic()`."""
    return time.monotonic() + scaled(seconds)


def scale_timeout(item: pytest.Item, default: float) -> None:
    """Multiply the limit of pytest-timeout, which a test that is about to begin has from its mark or by default."""
    mark = item.get_closest_marker("timeout")
    seconds = default if mark is None else mark.args[0]
    item.add_marker(pytest.mark.timeout(scaled(seconds)), append=False)
