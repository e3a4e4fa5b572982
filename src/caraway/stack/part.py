"""What the supervisor knows about a part: how to start it, and how to check that it works."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class PartState(StrEnum):
    """Where a part is in its life."""

    WAITING = "waiting"  # for parts that it needs
    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"  # its process lives, its health check fails
    RESTARTING = "restarting"  # it died; it waits for its turn
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to be started.

    Attributes:
        command: Program and arguments.
        folder: Working folder.
        environment: Variables on top of ours.
        user: The user to run as, if it must not be ours.
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
        """Short and unique; also names its log file."""

    @property
    def after(self) -> frozenset[str]:
        """Parts that must have become ready before it is started."""

    @property
    def port(self) -> int | None:
        """Where it listens, if it does."""

    @property
    def stop_signal(self) -> signal.Signals:
        """What asks it to end in good order."""

    @property
    def stop_seconds(self) -> float:
        """How long that may take before it is killed."""

    @property
    def start_seconds(self) -> float:
        """How long it may take to become ready."""

    def prepare(self) -> None:
        """Make what it needs before it can start; called before each start, hence quick when all is there."""

    def launch(self) -> Launch:
        """Return how to start it."""

    def check(self, pid: int) -> str | None:
        """Return why it isn't ready, or None if it is. `pid` is its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """A part at one moment, as far as its supervisor sees it.

    Attributes:
        name: Which part.
        state: Where it is in its life.
        message: More about the state, for people; may be empty.
        pid: Its process.
        process_created_at: The process's creation in seconds since 1970, as the system gives it: with the pid it
            identifies a process for good.
        port: Where it listens.
        ready_at: When it became ready, in seconds since 1970.
        restarts: How often it was started again.
        external: Whether it is somebody else's: watched, not started.
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
