"""Parts made of tiny real processes."""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from caraway.process.children.part import Launch, Part, PartState, PartStatus
from caraway.process.children.runner import Runner

# Writes a file when it is ready, and ends on request.
FAITHFUL = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("working", flush=True)
pathlib.Path(sys.argv[1]).write_text("ready")
while True:
    signal.pause()
"""

# Ignores the request to end.
STUBBORN = FAITHFUL.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")

# Leaves a child process behind when it is killed.
PARENT = FAITHFUL.replace("print(", "import subprocess; print(subprocess.Popen(['sleep', '600']).pid,")

# Does the same piece of work again and again for some seconds before it is ready.
SLOW = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    {work}
pathlib.Path(sys.argv[1]).write_text("ready")
while True:
    signal.pause()
"""
COMPUTING = "sum(range(10_000))"
WRITING = "print('still at it', flush=True); time.sleep(0.05)"

DYING = "import sys; print('no luck today', flush=True); sys.exit(3)"


@dataclass(kw_only=True)
class FakePart(Part):
    """A part whose process runs a few lines of Python."""

    folder: Path
    program: str = FAITHFUL
    name: str = "fake"
    after: frozenset[str] = frozenset()
    port: int | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    start_seconds: float = 20.0
    prepared: int = 0
    trouble: str | None = None
    on_prepare: Callable[[], None] = field(default=lambda: None)

    @property
    def ready_file(self) -> Path:
        return self.folder / f"{self.name}.ready"

    @override
    def prepare(self) -> None:
        self.prepared += 1
        self.ready_file.unlink(missing_ok=True)
        self.on_prepare()

    @override
    def launch(self) -> Launch:
        command = (sys.executable, "-I", "-S", "-c", self.program, str(self.ready_file))
        return Launch(command=command, folder=self.folder)

    @override
    def check(self, pid: int) -> str | None:
        assert pid
        if not self.ready_file.exists() or not self.ready_file.read_text():
            return "not ready yet"
        return self.trouble


@dataclass
class Watched:
    """A runner and all the reports that it made."""

    runner: Runner
    history: list[PartStatus]

    @property
    def log(self) -> Path:
        assert self.runner.log is not None
        return self.runner.log

    def states(self) -> list[PartState]:
        return [status.state for status in self.history]

    def stop(self) -> None:
        self.runner.stop(None)


RunPart = Callable[[FakePart], Watched]
