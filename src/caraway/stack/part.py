"""The parts of a stack, as the supervisor sees them: how to start a part, and how to check that it works."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class PartState(StrEnum):
    """The state of a part in its life."""

    WAITING = "waiting"  # for the parts that it needs
    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"  # its process lives, its health check fails
    RESTARTING = "restarting"  # it died; it is started again after a pause
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
        see_all: See `caraway.stack.launch.become`.
    """

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    see_all: bool = False


class Part(Protocol):
    """One supervised process of the stack. Methods may block; each part has a thread of its own."""

    @property
    def name(self) -> str:
        """A short, unique name, which also names the part's log file."""

    @property
    def after(self) -> frozenset[str]:
        """The parts that must have become ready before this one is started."""

    @property
    def port(self) -> int | None:
        """The port on which the part listens, if it does."""

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that asks the part to end in good order."""

    @property
    def stop_seconds(self) -> float:
        """The seconds for an orderly end, after which the part is killed."""

    @property
    def start_seconds(self) -> float:
        """The seconds within which the part must become ready."""

    def prepare(self) -> None:
        """Create the files that the part needs; called before each start, hence quick when they exist."""

    def launch(self) -> Launch:
        """Return the command that starts the part."""

    def check(self, pid: int) -> str | None:
        """Return why the part isn't ready, or None if it is. `pid` is its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """A part at one moment, as far as its supervisor sees it.

    Attributes:
        name: The name of the part.
        state: Its state in its life.
        message: More about the state, for people; may be empty.
        pid: The pid of its process.
        process_created_at: The process's creation in seconds since 1970, as the system reports it: with the pid it
            identifies a process for good.
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
