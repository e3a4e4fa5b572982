"""Keep the processes of a server running.

`python supervisor.py --host HOST --port PORT --readers N` becomes the parent of one writer and N readers. It runs as a
file of its own and imports the standard library only: so it needs little memory and has little to go wrong.

The children end when it does: their standard input is a pipe from it.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

# How soon what has ended is seen.
LOOK_S = 0.05
# A process that ends soon after its start is started again after this time, and ever later.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
# One that ran so long had no trouble to start.
STEADY_S = 10.0
# Requests under way end in the readers first, as they may need the writer. All of it stays below 15 s.
READERS_END_S, WRITER_END_S = 7.0, 6.0


@dataclass
class WorkerProcess:
    """A process that is to run."""

    name: str
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    due_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    ends: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start it."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE)
        self.started_at = time.monotonic()
        say("info", "started a process", process=self.name, pid=self.process.pid)

    def look(self) -> None:
        """Start it again if it has ended, when that is due."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.due_at:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.ends.append(code)
        if now - self.started_at > STEADY_S:
            self.pause_s = FIRST_PAUSE_S
        say("error", "a process ended, starting it again", process=self.name, code=code, after_seconds=self.pause_s)
        self.process, self.due_at = None, now + self.pause_s
        self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)

    @property
    def refused(self) -> bool:
        """Whether its first start found something wrong that another start won't change."""
        return self.ends[:1] == [1] and self.pause_s > FIRST_PAUSE_S


def end(children: list[WorkerProcess], seconds: float) -> bool:
    """Ask processes to end, and wait; kill those that don't. Tell whether all ended well."""
    running = [child.process for child in children if child.process is not None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    well = True
    for process in running:
        try:
            # One that has just been started may not have learned to end by itself yet.
            well &= process.wait(max(0.0, deadline - time.monotonic())) in {0, -signal.SIGTERM}
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            well = False
    return well


def say(level: str, event: str, **about: object) -> None:
    """Write a line into the log, in the form that the servers use."""
    line = {**about, "event": event, "level": level, "logger": "supervisor", "timestamp": datetime.now(UTC).isoformat()}
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--readers", type=int, required=True)
    chosen = parser.parse_args(arguments)
    # Only this user may enter it. The path of a Unix socket is short, so it can't lie in the data folder.
    folder = Path(tempfile.mkdtemp(prefix="caraway-"))
    module = [sys.executable, "-m", "caraway.server.workers"]
    writer = WorkerProcess("writer", [*module, "--folder", str(folder)])
    readers = [
        WorkerProcess(
            f"reader {number}",
            [*module, "--folder", str(folder), "--reader", str(number), "--host", chosen.host, "--port", chosen.port],
        )
        for number in range(1, chosen.readers + 1)
    ]
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        while not stopping.wait(LOOK_S) and not writer.refused:
            for child in (writer, *readers):
                child.look()
        well = end(readers, READERS_END_S)
        well &= end([writer], WRITER_END_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if well and not writer.refused else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
