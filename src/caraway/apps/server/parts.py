"""The parts of a process of the server, which are started in an order and stopped in the reverse of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

LOG = structlog.get_logger(__name__)


def nothing() -> None:
    """Do nothing, in the place of a step that a part doesn't have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPart:
    """A part of a server.

    Attributes:
        name: The name of the part in the log.
        start: Starts the part in the background; a part that works from its construction on has nothing to start.
        ask: Asks the part to stop, without waiting for it.
        stop: Stops the part, and waits until it has stopped.
    """

    name: str
    start: Callable[[], object] = nothing
    ask: Callable[[], object] = nothing
    stop: Callable[[], object] = nothing


class Thread(Protocol):
    """A thread that can be asked to stop, such as a `Recurring`."""

    def start(self) -> object:
        """Start the thread."""

    def stop(self, timeout_s: float, /) -> object:
        """Ask the thread to stop, and wait at most `timeout_s` seconds for that."""


def thread_part(name: str, thread: Thread, stop_s: float) -> ServerPart:
    """Return the part that is a thread; its end is awaited for at most `stop_s` seconds."""
    return ServerPart(name=name, start=thread.start, ask=partial(thread.stop, 0), stop=partial(thread.stop, stop_s))


class ServerParts:
    """The parts of one process, in the order in which they start."""

    def __init__(self, parts: Iterable[ServerPart]) -> None:
        """Prepare; nothing is started before `start`."""
        self._parts = tuple(parts)
        self._started: list[ServerPart] = []

    def start(self) -> None:
        """Start all parts in their order. If one fails, those before it are stopped, and its error is raised."""
        for part in self._parts:
            try:
                part.start()
            except BaseException:
                LOG.exception("a part of the server failed to start, so those before it are stopped", part=part.name)
                self.stop()
                raise
            self._started.append(part)

    def stop(self) -> None:
        """Stop the parts that were started, the last one first; an error of one is logged and doesn't spare the others.

        All parts are asked to stop before one of them is waited for, so that they stop side by side.
        """
        started, self._started = self._started[::-1], []
        for part in started:
            _try(part, part.ask)
        for part in started:
            _try(part, part.stop)


def _try(part: ServerPart, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception:
        LOG.exception("a part of the server failed to stop", part=part.name)
