"""The progress of the replay, with the newest flight: a bar on a terminal, otherwise a line every two seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from caraway.apps.cli.output import out
from caraway.apps.demo.replay import OnSlice
from caraway.apps.demo.watch import Watcher

LINE_SECONDS = 2.0


@contextmanager
def shown(total: int, watcher: Watcher) -> Iterator[OnSlice]:
    """Show a replay of `total` events, and the newest flight of `watcher`, until the block ends.

    The yielded function must be called after each slice of events (`caraway.apps.demo.replay`).
    """
    if not out.is_terminal:
        yield _Lines(total, watcher).update
        return
    bar = _Bar(total, watcher)
    with Live(bar, console=out, refresh_per_second=8):
        yield bar.update


class _Bar:
    """A live bar, which rich renders again several times a second."""

    def __init__(self, total: int, watcher: Watcher) -> None:
        self._watcher = watcher
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        self._task = self._progress.add_task("", total=total, rate="")
        self._started = time.monotonic()

    def __rich__(self) -> RenderableType:
        newest = str(self._watcher.last or "")
        return Group(self._progress, Text(newest, style="dim", no_wrap=True, overflow="ellipsis"))

    def update(self, events: int, reached: pd.Timestamp) -> None:
        self._progress.advance(self._task, events)
        rate = self._progress.tasks[0].completed / (time.monotonic() - self._started)
        self._progress.update(self._task, description=f"{reached:%d %b %H:%M}", rate=f"{rate:,.0f} events/s")


class _Lines:
    """Plain lines, for logs."""

    def __init__(self, total: int, watcher: Watcher) -> None:
        self._watcher = watcher
        self._total = total
        self._done = 0
        self._started = self._last = time.monotonic()

    def update(self, events: int, reached: pd.Timestamp) -> None:
        self._done += events
        now = time.monotonic()
        if now - self._last < LINE_SECONDS and self._done < self._total:
            return
        self._last = now
        rate = self._done / (now - self._started)
        out.print(
            f"{now - self._started:6.1f} s  {reached:%d %b %H:%M}  {self._done:,} of {self._total:,} events, "
            f"{rate:,.0f} events/s"
        )
        if self._watcher.last is not None:
            out.print(f"          {self._watcher.last}", markup=False, soft_wrap=True)
