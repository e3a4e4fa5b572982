"""The progress of a wait, in terminals and notebooks.

Rich draws a bar if it is installed. It belongs to `caraway[cli]`; without it the light client prints a line now and
then.
"""

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

# Seconds between two plain lines, and from the begin of the wait to the first one: a shorter wait needs no line.
LINE_S = 2.0


class Progress(Protocol):
    """Shows the progress of a wait, from `with` to its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def show(self, done: int, of: int, what: str) -> None:
        """Show that `done` of `of` parts have caught up, and the part that is waited for."""
        ...


class Silent:
    """Shows no progress."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def show(self, done: int, of: int, what: str) -> None:
        """Do nothing."""


class Lines(Silent):
    """Prints a line now and then."""

    def __init__(self, label: str, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Print to `stream`; each line begins with `label`."""
        self._label = label
        self._stream = stream
        self._clock = clock
        self._started = self._written = clock()

    def show(self, done: int, of: int, what: str) -> None:
        """Print a line, unless one was printed a moment ago."""
        now = self._clock()
        if now - self._written >= LINE_S:
            self._written = now
            print(
                f"{self._label}: {done} of {of} after {now - self._started:.0f} s, {what}",
                file=self._stream,
                flush=True,
            )


class Bar(Silent):
    """Draws a bar by rich."""

    def __init__(self, label: str, console: Any) -> None:
        """Draw on a console of rich."""
        # A late import: rich may not be installed, and takes longer to import than the client.
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}", markup=False),
            console=console,
        )
        self._task = self._bar.add_task(label, total=1, what="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop moving the bar, and leave it on the screen."""
        self._bar.stop()

    def show(self, done: int, of: int, what: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=max(1, of), what=what)


def progress_for(label: str, *, wanted: bool | None, stream: TextIO | None = None) -> Progress:
    """Return an object that shows the progress.

    Args:
        label: The name of the work.
        wanted: True or False: show it or not; None: show it in terminals and notebooks only.
        stream: The stream to print to; standard error by default.
    """
    stream = sys.stderr if stream is None else stream
    notebook = in_notebook()
    if wanted is False or (wanted is None and not (notebook or stream.isatty())):
        return Silent()
    if find_spec("rich") is None:
        return Lines(label, stream)
    from rich.console import Console  # noqa: PLC0415 (see `Bar`)

    console = Console(file=None if notebook else stream, force_jupyter=notebook or None)
    # Rich moves a bar only on a terminal and in a notebook, where it can draw over the bar's last state.
    return Bar(label, console) if notebook or console.is_terminal else Lines(label, stream)


def in_notebook() -> bool:
    """Return whether this runs in a notebook's kernel, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
