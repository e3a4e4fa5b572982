"""A part as its supervisor sees it: how to start its process, and how to check that it works."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class PartState(StrEnum):
    """The state of a part in its life."""

    WAITING = "waiting"  # The parts that it needs aren't ready.
    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"  # Its process lives, but its health check fails.
    RESTARTING = "restarting"  # It has died, and is started again after a pause.
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to be started.

    Attributes:
        command: Program and arguments.
        folder: Working folder.
        environment: Variables in addition to those of this process.
        user: The user to run as; None: the user of this process.
        see_all: True: with `user`, the process may read all files on Linux, although it doesn't run as root.
        pipe: True: its standard input is a pipe, whose end shows it on any system that this process has ended. (Linux
            also sends it a signal.)
        leads: True: it leads a session and a process group of its own. So Ctrl-C in a terminal reaches only this
            process, which stops its parts in order.
    """

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    see_all: bool = False
    pipe: bool = False
    leads: bool = True


class Part:
    """One supervised process. Its methods may block, since a `Runner` calls them from a thread for this part alone.

    Attributes:
        name: A short, unique name, which also names the part's log file.
        after: The parts that must have become ready before this one is started.
        needs: The parts without which this one can't become ready. It isn't given up while one of them isn't ready.
        port: The port on which the part listens, if it does.
        stop_signal: The signal that asks the part to end in good order.
        stop_seconds: The seconds for an orderly end, after which the part is killed.
        start_seconds: The seconds for which the part may do nothing at all before it is ready. A part that makes
            progress is waited for longer (`caraway.process.children.progress`).
    """

    name: str
    after: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    port: int | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    start_seconds: float = 60.0

    def prepare(self) -> None:
        """Create the files that the part needs; called before each start, hence quick when they exist."""

    def launch(self) -> Launch:
        """Return the command that starts the part."""
        raise NotImplementedError

    def created_at(self, pid: int) -> float | None:
        """Return the creation time of its process, for a status that another process may read; None if it has ended."""
        # The module imports psutil, which takes 5 MB of memory. So it is imported at the first call: a server that
        # supervises its reader processes never asks for creation times.
        from caraway.process.children.process_table import created_at  # noqa: PLC0415

        return created_at(pid)

    def check(self, pid: int) -> str | None:  # noqa: ARG002 (by default a process that lives counts as ready)
        """Return why the part isn't ready, or None if it is. `pid` is its process."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """A part at one moment, as far as its supervisor sees it.

    Attributes:
        name: The name of the part.
        state: Its state in its life.
        message: More about the state, for people; may be empty.
        pid: The pid of its process.
        process_created_at: The creation of the process in seconds since 1970, as the system reports it. The pid alone
            may be used again by another process.
        port: The port on which it listens.
        ready_at: The time at which it became ready, in seconds since 1970.
        restarts: How often it was started again.
        external: True if the part runs outside of the stack, which only watches it.
    """

    name: str
    state: PartState
    message: str = ""
    pid: int | None = None
    process_created_at: float | None = None
    port: int | None = None
    ready_at: float | None = None
    restarts: int = 0
    external: bool = False
