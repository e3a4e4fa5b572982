"""The supervisor, which keeps the processes of a server running.

`python supervisor.py --host HOST --port PORT --readers N` becomes the parent of one writer and N readers. It is run as
a file and imports the standard library only, so it needs little memory and has little to fail.

The children end when the supervisor does: their standard input is a pipe from it.
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

# Interval between two checks for processes that have ended.
LOOK_S = 0.05
# Pauses before the restart of a process that ended soon after its start: the first, and the longest as they grow.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
# Running time after which a start counts as successful, so that the pause is short again.
STEADY_S = 10.0
# Seconds for the readers to end, then for the writer, which the readers' last requests may need; in total below 15 s.
READERS_END_S, WRITER_END_S = 7.0, 6.0


@dataclass
class WorkerProcess:
    """A process that must be kept running."""

    name: str
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    due_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    ends: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start the process."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE)
        self.started_at = time.monotonic()
        say("info", "started a process", process=self.name, pid=self.process.pid)

    def look(self) -> None:
        """Start the process again if it has ended and its pause is over."""
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
        """True if its first start failed in a way that another start won't change."""
        return self.ends[:1] == [1] and self.pause_s > FIRST_PAUSE_S


def end(children: list[WorkerProcess], seconds: float) -> bool:
    """Stop processes, and kill those that don't end in time; return whether all ended well."""
    running = [child.process for child in children if child.process is not None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    well = True
    for process in running:
        try:
            # A process that was just started may not handle SIGTERM yet, and then dies by it.
            well &= process.wait(max(0.0, deadline - time.monotonic())) in {0, -signal.SIGTERM}
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            well = False
    return well


def say(level: str, event: str, **about: object) -> None:
    """Write a line to the log, in the form that the servers use."""
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
    # Only this user can enter the folder. It isn't in the data folder, because the path of a Unix socket must be short.
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
