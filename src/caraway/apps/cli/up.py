"""`caraway up`."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.progress import shown_progress
from caraway.apps.cli.server_options import DataOption
from caraway.apps.stack.errors import PartFailedError
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import StackRecord, read_record
from caraway.apps.stack.stack import Progress, Stack
from caraway.client.discovery import TOKEN
from caraway.process.children.logs import begin_anew, quote
from caraway.process.children.part import PartState, PartStatus
from caraway.process.private_files import opener
from caraway.process.settings.settings import Settings, load_settings

POLL_SECONDS = 0.1


@command
def up(
    data: DataOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once all is ready; `caraway down` ends it.")] = False,
    no_tokens: Annotated[
        bool,
        typer.Option("--no-tokens", help="Allow everybody who reaches the server to do everything, also to run code."),
    ] = False,
) -> None:
    """Start Postgres, Kafka, the engine and the server, and keep them running until Ctrl-C."""
    settings = load_settings(data)
    if no_tokens:
        server = settings.server.model_copy(update={"tokens": False})
        settings = settings.model_copy(update={"server": server})
    began = time.monotonic()
    if detach:
        _start_detached(settings)
    else:
        _run(settings, began)


def _run(settings: Settings, began: float) -> None:
    stack = Stack(settings)
    with _ending_in_order(stack) as end:
        try:
            with end.by_exception(), shown_progress() as progress:
                stack.start(progress)
            _print(f"Caraway is ready at [bold]{stack.url}[/] after {time.monotonic() - began:.1f} s.")
            _show_console(str(stack.url), settings)
            _show_folder(settings, "Ctrl-C")
            stack.report_to(_report)
            end.asked.wait()
        except KeyboardInterrupt:
            # Ctrl-C was pressed during the start.
            pass
        _print("Stopping; once more kills.")
        stack.report_to(None)
        stack.stop()
    _print("Stopped. The data stays.")


def _print(text: str) -> None:
    """Print a line if that is possible: a stack is stopped in order even if its terminal is closed."""
    # Rich raises `SystemExit` if a pipe is broken.
    with suppress(OSError, SystemExit):
        out.print(text, soft_wrap=True)


@dataclass(slots=True)
class _End:
    """The request to end the stack. It raises an exception only in blocks that may be interrupted anywhere."""

    asked: threading.Event = field(default_factory=threading.Event)
    raises: bool = False

    @contextmanager
    def by_exception(self) -> Iterator[None]:
        """Interrupt the block when the end is requested."""
        self.raises = True
        try:
            yield
        finally:
            self.raises = False


@contextmanager
def _ending_in_order(stack: Stack) -> Iterator[_End]:
    """Turn the first Ctrl-C (or `caraway down`, or a closed terminal) into an orderly end, the second into a kill."""
    end = _End()

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if end.asked.is_set():
            stack.kill()
            os._exit(130)
        end.asked.set()
        # Outside of `by_exception` the handler only sets `asked`, for which the main thread waits. An exception there
        # could interrupt the printing of a line, and the line would be printed twice.
        if end.raises:
            raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = [signal.signal(number, on_signal) for number in signals]
    try:
        yield end
    finally:
        for number, handler in zip(signals, former, strict=True):
            signal.signal(number, handler)


def _report(text: str, parts: Sequence[PartStatus]) -> None:
    # Nothing is printed while all parts run and none was ever started again.
    if any(part.state is not PartState.RUNNING or part.restarts for part in parts):
        out.print(f"{time.strftime('%H:%M:%S')}  {text}", markup=False, soft_wrap=True)


def _start_detached(settings: Settings) -> None:
    folder = DataFolder(settings.data_dir)
    # The folder is claimed for a moment, so that an error is printed here and not only in the child's log.
    folder.claim()
    folder.release()
    log = folder.log("supervisor")
    begin_anew(log)
    began = time.monotonic()
    with open(log, "wb", opener=opener) as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "caraway.apps.cli", "up"],
            env={**os.environ, **settings.environment()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with shown_progress() as progress:
        record = _wait_until_ready(child, folder, progress)
    _print(f"Caraway is ready at [bold]{record.urls['server']}[/] after {time.monotonic() - began:.1f} s.")
    _show_console(str(record.urls["server"]), settings)
    _show_folder(settings, "`caraway down`")


def _show_console(url: str, settings: Settings) -> None:
    """Print where the console is, and with which token to sign in there if one is needed."""
    token = f" Sign in with the token in {settings.data_dir / TOKEN}." if settings.server.tokens else ""
    _print(f"Console: {url.rstrip('/')}/console.{token}")


def _wait_until_ready(child: subprocess.Popen[bytes], folder: DataFolder, progress: Progress) -> StackRecord:
    shown: tuple[PartStatus, ...] = ()
    while child.poll() is None:
        record = read_record(folder.record)
        if record is not None and record.pid == child.pid:
            news = [f"{part.name}: {part.state}" for part in record.parts if part not in shown]
            if news:
                shown = record.parts
                progress(", ".join(news), record.parts)
            if record.state == "running":
                return record
        time.sleep(POLL_SECONDS)
    raise PartFailedError(f"The stack ended while it started:\n{quote(folder.log('supervisor'), 30)}")


def _show_folder(settings: Settings, end: str) -> None:
    """Print where the data is, what ends the stack, and what it can't promise."""
    _print(f"Data and logs: {settings.data_dir}. {end} ends it.")
    if settings.kafka.bootstrap_servers is None:
        _print("Accepted events are on this disk alone, because this Kafka has one broker.")
