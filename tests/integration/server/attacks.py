"""The bounds of an attack on a running server: the time of its answer, the waits of other callers, and memory."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import TypeVar

import httpx2
import psutil

from tests.integration.server.server_process import ServerProcess, eventually
from tests.timeouts import scaled_now
from tests.tls import TLS

MB = 1024 * 1024
# The longest that an attack may keep another caller, and its own answer, waiting; and the memory that it may take.
WAIT_S, MEMORY = 0.25, 50 * MB
# An answer that is late by less than this factor may be so by a pause of the machine.
PAUSE = 4
T = TypeVar("T")


class Stopwatch:
    """Measures waits for a server, less the time for which its threads and this one only waited for a processor.

    Linux counts that time; on other systems it is part of the wait.
    """

    def __init__(self, server: ServerProcess) -> None:
        """Start."""
        self._server = server.pid
        self._begun, self._queued = time.perf_counter(), self._queued_s()

    def seconds(self) -> float:
        """Return how long the wait has been so far."""
        before, here = self._queued
        threads, now_here = self._queued_s()
        # The threads wait side by side, so that the longest of these waits is the one that counts.
        there = max((waited - before.get(thread, 0.0) for thread, waited in threads.items()), default=0.0)
        return time.perf_counter() - self._begun - there - (now_here - here)

    def _queued_s(self) -> tuple[dict[str, float], float]:
        tasks = Path(f"/proc/{self._server}/task").glob("*/schedstat")
        return {str(file): _queued_s(file) for file in tasks}, _queued_s(Path("/proc/thread-self/schedstat"))


def _queued_s(file: Path) -> float:
    try:
        return int(file.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        # The thread has ended, or the system doesn't count.
        return 0.0


@contextmanager
def unharmed(
    server: ServerProcess, *, before: int | None = None, memory: int = MEMORY, share: float = 1.0
) -> Iterator[Callable[[], httpx2.Response]]:
    """Check that no health check of another caller waits long, and that the server takes little memory meanwhile.

    It may take `memory` bytes more than the `before` bytes that it held before the attack, by default what it holds
    now. A `share` of the health checks must be answered in time.
    """
    stop, begun = threading.Event(), threading.Event()
    before = held(server) if before is None else before
    waits: list[float] = []
    peak = [0]

    def ask() -> None:
        with httpx2.Client(base_url=str(server.http.base_url), timeout=300, verify=TLS) as other:
            while not stop.is_set():
                stopwatch = Stopwatch(server)
                assert other.get("/health").status_code == 200
                waits.append(stopwatch.seconds())
                peak[0] = max(peak[0], held(server))
                begun.set()

    asking = threading.Thread(target=ask)
    asking.start()
    begun.wait()
    try:
        yield lambda: server.http.get("/health")
        eventually(lambda: len(waits) > 10)
    finally:
        stop.set()
        asking.join()
    waits.sort()
    assert waits[ceil(share * len(waits)) - 1] < scaled_now(WAIT_S), waits[-10:]
    taken = max(peak[0], held(server)) - before
    assert taken < memory, f"{taken // MB} MiB"


def held(server: ServerProcess) -> int:
    """Return the bytes of memory that a server holds now."""
    return psutil.Process(server.pid).memory_info().rss


def timed(server: ServerProcess, send: Callable[[], T], wait_s: float = WAIT_S) -> T:
    """Return or raise an answer of a server, which has to come within so many seconds.

    An attack takes its time each time. So an answer that is a little late, as after a pause of the whole machine, is
    asked for again, up to twice.
    """
    for left in (2, 1, 0):
        stopwatch = Stopwatch(server)
        try:
            answer = send()
        except Exception:
            if _is_in_time(stopwatch, wait_s, left):
                raise
        else:
            if _is_in_time(stopwatch, wait_s, left):
                return answer
    raise AssertionError("the last answer is in time, or fails")


def _is_in_time(stopwatch: Stopwatch, wait_s: float, left: int) -> bool:
    """Return whether an answer came in time; fail if it came much too late, or no further one may be asked for."""
    took, most = stopwatch.seconds(), scaled_now(wait_s)
    assert took < (PAUSE * most if left else most), f"the answer came after {took:.2f} s"
    return took < most
