"""Supervision of one part: prepare, start, watch, start again."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from caraway.errors import CarawayError
from caraway.process.children.logs import quote, rotate
from caraway.process.children.part import Part, PartState, PartStatus
from caraway.process.children.process import kill_group, start, stop
from caraway.process.children.progress import ProgressTimeout, signs_of
from caraway.process.private_files import opener

# Seconds between two health checks: the least pause while a part starts, and the pause once it is ready.
STARTING_SECONDS = 0.1
RUNNING_SECONDS = 2.0
# A long start is checked less often, so that the checks cost little: the pause is this share of the time that the start
# has taken, within the two bounds above. So the checks delay a start by at most this share.
PAUSE_SHARE = 0.05

# After this many failed health checks in a row a part is shown as unresponsive, but it isn't restarted. On a machine
# under load a check may fail once or twice without anything being wrong.
TOLERATED_FAILURES = 3

# Seconds before a part is started again, by the number of deaths of its process in a row. The last pause repeats for
# ever.
BACKOFF_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

# A part that has lived longer than this counts as recovered: its next death is the first one in a row.
LONG_LIFE_SECONDS = 60.0

# After this many deaths in a row a part is shown as failed, with the end of its log. The part is still started again
# after each pause.
REPEATED_DEATHS = 3


class Runner:
    """Supervises one part from a thread of its own.

    The kernel ends a part when the thread that started it ends. So one thread starts, watches and stops the part.
    """

    def __init__(
        self,
        part: Part,
        log: Path | None,
        *,
        may_start: Callable[[], bool],
        on_change: Callable[[PartStatus], None],
        is_held_up: Callable[[], bool] = lambda: False,
        pauses_s: Sequence[float] | None = None,
    ) -> None:
        """Prepare the supervision of a part.

        Args:
            part: The part to run.
            log: The file to which its output is appended; None: its output is this process's.
            may_start: Returns whether the parts that it comes after are ready.
            on_change: Called from the part's thread with each new status.
            is_held_up: Returns whether a part that this one needs isn't ready, so that this one can't become ready.
            pauses_s: The pauses before the next start, by the number of deaths in a row; the last one repeats for ever.
        """
        self.part = part
        self.log = log
        self.status = PartStatus(name=part.name, state=PartState.WAITING, port=part.port)
        self.has_been_ready = False
        self._may_start = may_start
        self.first_exit: int | None = None
        """The exit code of the first process that ended without being stopped."""
        self.ended_well = True
        """False if the process that was stopped had to be killed, or ended with an error."""
        self._on_change = on_change
        self._is_held_up = is_held_up
        self._pauses_s = pauses_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"caraway-{part.name}", daemon=True)

    def start(self) -> None:
        """Start the supervision; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float | None) -> None:
        """Ask the part to end, and wait at most `timeout_s` (None: as long as it takes) until it has."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._may_start():
            if self._stopping.wait(STARTING_SECONDS):
                self._change(state=PartState.STOPPED)
                return
        deaths = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = self._live()
            if reason is None:
                break
            deaths = 1 if time.monotonic() - began > LONG_LIFE_SECONDS else deaths + 1
            if self._pause(deaths, reason):
                break
        self._change(state=PartState.STOPPED, message="", pid=None, process_created_at=None, ready_at=None)

    def _live(self) -> str | None:
        """Start the part and watch it to its end; return why it ended, or None if it was stopped."""
        self._change(state=PartState.PREPARING, message="")
        try:
            self._rotate()
            self.part.prepare()
            process = start(self.part.launch(), self.log, self.part.stop_signal)
        except Exception as error:  # noqa: BLE001 (no error ends the supervision)
            return _text(error)
        self._change(state=PartState.STARTING, pid=process.pid, process_created_at=self.part.created_at(process.pid))
        try:
            reason = self._watch(process)
        except Exception as error:  # noqa: BLE001
            reason = f"it can't be watched: {_text(error)}"
        if reason is None:
            self._change(state=PartState.STOPPING, message="")
            in_time = stop(process, self.part.stop_signal, self.part.stop_seconds)
            # A process that was just started may not have installed its signal handler yet. Then the signal kills it,
            # and its exit code is the signal's negative number. That counts as a good end, like 0.
            self.ended_well = in_time and process.returncode in {0, -self.part.stop_signal}
        else:
            kill_group(process)
        return reason

    def _watch(self, process: Popen[bytes]) -> str | None:
        """Watch a process; return why it ended, or None if it is to be stopped."""
        timeout: ProgressTimeout | None = None
        began = time.monotonic()
        ready, failures, next_check = False, 0, 0.0
        while not self._stopping.is_set():
            try:
                # Waiting for the process notices its death at once, even between two health checks.
                code = process.wait(STARTING_SECONDS)
            except TimeoutExpired:
                pass
            else:
                self.first_exit = code if self.first_exit is None else self.first_exit
                return f"it ended with {_describe(code)}"
            if time.monotonic() < next_check:
                continue
            reason = self.part.check(process.pid)
            now = time.monotonic()
            next_check = now + (RUNNING_SECONDS if ready else _starting_pause_s(now - began))
            if reason is None:
                failures = 0
                if not ready or self.status.state is not PartState.RUNNING:
                    ready = True
                    self._change(state=PartState.RUNNING, message="", ready_at=self.status.ready_at or time.time())
                    # Parts that come after this one start as soon as `has_been_ready` is true. So it is set after the
                    # change is reported, and the reports come in the order of the starts.
                    self.has_been_ready = True
                self._rotate()
            elif not ready:
                # A start that takes long may write much into the log.
                self._rotate()
                timeout = timeout or ProgressTimeout(self.part.start_seconds, lambda: signs_of(process.pid, self.log))
                given_up = timeout.given_up(excused=self._is_held_up())
                if given_up is not None:
                    why = f"it wasn't ready after {given_up.seconds:.0f} s: {reason} ({given_up.why})"
                    self._note(f"this process is ended, because {why}")
                    stop(process, self.part.stop_signal, self.part.stop_seconds)
                    return why
            else:
                failures += 1
                if failures == TOLERATED_FAILURES:
                    self._change(state=PartState.UNRESPONSIVE, message=reason)
        return None

    def _pause(self, deaths: int, reason: str) -> bool:
        """Wait before the next start; return whether the part was stopped meanwhile."""
        pauses = self._pauses_s or BACKOFF_SECONDS
        wait = pauses[min(deaths, len(pauses)) - 1]
        state, message = PartState.RESTARTING, reason
        if deaths >= REPEATED_DEATHS:
            state = PartState.FAILED
            message = f"it died {deaths} times in a row, lastly because {reason}; next attempt in {wait:.0f} s"
            message = f"{message}\n{quote(self.log)}" if self.log is not None else message
        self._change(
            state=state,
            message=message,
            pid=None,
            process_created_at=None,
            ready_at=None,
            restarts=self.status.restarts + 1,
        )
        return self._stopping.wait(wait)

    def _note(self, text: str) -> None:
        """Write a line of the supervisor into the part's log."""
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8", opener=opener) as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC caraway: {text}\n")

    def _rotate(self) -> None:
        if self.log is not None:
            rotate(self.log)

    def _change(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type] # keywords of PartStatus
        self._on_change(self.status)


def _starting_pause_s(taken_s: float) -> float:
    """Return the pause before the next health check of a part whose start has taken `taken_s` until now."""
    return min(RUNNING_SECONDS, max(STARTING_SECONDS, PAUSE_SHARE * taken_s))


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, CarawayError) else f"{type(error).__name__}: {error}"


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
