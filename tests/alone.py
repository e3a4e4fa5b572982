"""Running one part by itself, without supervision: for tests and tools that need a broker or a database."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caraway.apps.stack.errors import PartFailedError
from caraway.process.children.logs import quote
from caraway.process.children.part import Part
from caraway.process.children.process import start, stop
from caraway.process.children.progress import ProgressTimeout, signs_of

# A part that has become ready is noticed within this time.
POLL_SECONDS = 0.05


@contextmanager
def running(part: Part, log: Path) -> Iterator[int]:
    """Run a part until the block ends; yield its pid once it is ready.

    Args:
        part: The part; those that it comes `after` aren't started.
        log: The file to which its output is appended.

    Raises:
        PartFailedError: The part ended, or wasn't ready in time; the text quotes its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    part.prepare()
    process = start(part.launch(), log, part.stop_signal)
    try:
        timeout = ProgressTimeout(part.start_seconds, lambda: signs_of(process.pid, log))
        while (reason := part.check(process.pid)) is not None:
            if process.poll() is not None:
                raise PartFailedError(f"{part.name} ended with code {process.returncode}:\n{quote(log)}")
            if (given_up := timeout.given_up()) is not None:
                raise PartFailedError(
                    f"{part.name} isn't ready after {given_up.seconds:.0f} s ({given_up.why}): {reason}\n{quote(log)}"
                )
            time.sleep(POLL_SECONDS)
        yield process.pid
    finally:
        stop(process, part.stop_signal, part.stop_seconds)
