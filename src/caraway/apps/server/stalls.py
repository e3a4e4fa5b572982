"""A watch over an event loop: it finds what holds the loop for a quarter of a second, and names its calls in the log.

The loop beats every 50 ms. A thread looks at the beats, and takes the calls of the loop's thread when one is late. So
nothing is measured around each callback, and a server without stalls pays for 30 short wake-ups a second, which take
less than a hundredth of a processor.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from types import FrameType

import structlog
from prometheus_client import Counter

LOG = structlog.get_logger(__name__)

STALLS = Counter("caraway_event_loop_stalls", "Times that the event loop answered nobody for 250 ms or more.")
# While one callback holds the loop, all other callers wait. Nothing that a request does there may take this long.
LIMIT_S = 0.25
# Seconds between two beats of the loop, and between two looks of the thread. If the last beat was LIMIT_S less LOOK_S
# ago or more, the thread notes the loop's innermost calls. So it has the calls of each stall of LIMIT_S while the stall
# lasts.
BEAT_S, LOOK_S = 0.05, 0.1
# A stall of more than these seconds is logged while it lasts, since it may never end.
LONG_S = 1.0
# The most lines about stalls in a minute, since a server that stalls all the time would fill its log.
MOST_LINES = 10
MINUTE_S = 60.0
# The most innermost calls in a log line: of the loop's thread, and of each other thread.
CALLS, CALLS_OF_OTHERS = 30, 4


class StallWatch:
    """Watches the event loop of the thread that starts it."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """Find stalls of `limit_s` seconds; a few that are up to `BEAT_S` shorter are found, too."""
        self._limit_s = limit_s
        self._thread = threading.get_ident()
        self._ending = threading.Event()
        self._lines: deque[float] = deque(maxlen=MOST_LINES)
        self._calls: tuple[float, list[str]] = (0.0, [])
        self._at, self._worked = time.monotonic(), time.thread_time()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch; called by the thread of the loop."""
        self._at, self._worked = time.monotonic(), time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)
        threading.Thread(target=self._look, name="stall-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch; called by the thread of the loop."""
        self._ending.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        now, worked = time.monotonic(), time.thread_time()
        took = now - self._at
        if took >= self._limit_s:
            STALLS.inc()
            at, calls = self._calls
            # The processor time shows what held the loop. If it is close to the whole time, a callback computed. If it
            # is far less, a callback waited, another thread held the interpreter, or the machine was busy.
            self._tell(
                "the event loop stood still",
                seconds=round(took, 3),
                processor_seconds=round(worked - self._worked, 3),
                calls=calls if at == self._at else [],
            )
        self._at, self._worked = now, worked
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _look(self) -> None:
        told = 0.0
        while not self._ending.wait(LOOK_S):
            at = self._at
            late = time.monotonic() - at
            if late < self._limit_s - LOOK_S:
                continue
            if self._calls[0] != at:
                self._calls = at, calls_of(sys._current_frames().get(self._thread), CALLS)  # noqa: SLF001 (Python's own way)
            if late >= LONG_S and told != at:
                told = at
                # Another thread may hold the interpreter, so the line has the calls of all threads.
                self._tell(
                    "the event loop stands still", seconds=round(late, 3), calls=self._calls[1], threads=other_threads()
                )

    def _tell(self, event: str, **facts: object) -> None:
        now = time.monotonic()
        if len(self._lines) == MOST_LINES and now - self._lines[0] < MINUTE_S:
            return
        self._lines.append(now)
        LOG.warning(event, **facts)


def other_threads(most: int = CALLS_OF_OTHERS) -> dict[str, list[str]]:
    """Return the innermost calls of each other thread by its name, the inner one first."""
    # Despite its name, `sys._current_frames` is Python's own way to the calls of all threads.
    frames = sys._current_frames()  # noqa: SLF001
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    found = {thread.name: calls_of(frames.get(thread.ident or 0), most) for thread in others}
    return {name: calls for name, calls in found.items() if calls}


def calls_of(frame: FrameType | None, most: int) -> list[str]:
    """Return at most `most` calls that led to a frame, the inner ones first; none of a thread that has ended."""
    if frame is None:
        return []
    inner = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=most, lookup_lines=False)
    return [f"{'/'.join(Path(call.filename).parts[-2:])}:{call.lineno} {call.name}" for call in inner]
