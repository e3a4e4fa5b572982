"""Run one part by itself, without supervision: for tests and tools that need a broker or a database."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caraway.stack.errors import PartFailedError
from caraway.stack.logs import quote
from caraway.stack.part import Part
from caraway.stack.process import start, stop

# How soon a part that has become ready is noticed.
POLL_SECONDS = 0.05


@contextmanager
def running(part: Part, log: Path) -> Iterator[int]:
    """Run a part until the block ends; give its pid once it is ready.

    Args:
        part: Which; nothing that it comes `after` is started.
        log: Where its output goes.

    Raises:
        PartFailedError: It ended or stayed silent for too long; the text quotes its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    part.prepare()
    process = start(part.launch(), log, part.stop_signal)
    try:
        deadline = time.monotonic() + part.start_seconds
        while (reason := part.check(process.pid)) is not None:
            if process.poll() is not None:
                raise PartFailedError(f"{part.name} ended with code {process.returncode}:\n{quote(log)}")
            if time.monotonic() > deadline:
                raise PartFailedError(
                    f"{part.name} isn't ready after {part.start_seconds:.0f} s: {reason}\n{quote(log)}"
                )
            time.sleep(POLL_SECONDS)
        yield process.pid
    finally:
        stop(process, part.stop_signal, part.stop_seconds)
