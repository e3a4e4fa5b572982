"""The supervisor, which keeps the processes of a server running.

`python -m caraway.apps.server.workers.supervisor --host HOST --port PORT --readers N` becomes the parent of one writer
and N readers. It imports nothing but the standard library and `caraway.process.children`, so it needs little memory and
has little to fail.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from caraway.process.children.ending import on_request_to_end
from caraway.process.children.part import Launch, Part, PartState, PartStatus
from caraway.process.children.runner import Runner

# Seconds between two checks whether the writer has ended with `REFUSED`, after which the whole server ends.
LOOK_S = 0.05
# The pauses, in seconds, before a process that ended is started again. Each further end in a row leads to the next
# pause. Requests fail meanwhile, so even the longest pause is short.
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
# Seconds after which a process that was asked to end is killed. The writer is asked after the readers have ended, since
# their last requests may need it. Both times together stay below the 15 s that the server has to end.
READERS_END_S, WRITER_END_S = 7.0, 6.0
# The exit code of a process that refuses to start, because its settings or surroundings are wrong. Another start would
# fail too, so the server ends.
REFUSED = 1


@dataclass(frozen=True, kw_only=True)
class Worker(Part):
    """The writer or a reader, as a part of the server. A check of whether it works is made over HTTP, from outside."""

    name: str
    arguments: tuple[str, ...]
    stop_seconds: float = READERS_END_S

    def launch(self) -> Launch:
        """Return the command that starts the process, which ends when the pipe to it does."""
        return Launch(command=(sys.executable, *self.arguments), folder=Path.cwd(), pipe=True, leads=False)

    def created_at(self, pid: int) -> None:
        """Return None: no other process reads the status of a worker."""


def keep(worker: Worker) -> Runner:
    """Start a worker, and start it again whenever it ends."""
    runner = Runner(worker, None, may_start=lambda: True, on_change=report, pauses_s=PAUSES_S)
    runner.start()
    return runner


def end(runners: list[Runner]) -> bool:
    """Stop workers, and kill those that don't end in time; return whether all ended well."""
    for runner in runners:
        runner.stop(0)
    for runner in runners:
        runner.stop(None)
    return all(runner.ended_well for runner in runners)


def report(status: PartStatus) -> None:
    """Write a line to the log about a process that was started or has ended."""
    match status.state:
        case PartState.STARTING:
            say("info", "started a process", process=status.name, pid=status.pid)
        case PartState.RESTARTING | PartState.FAILED:
            say("error", "a process ended, starting it again", process=status.name, reason=status.message)


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
    stopping = threading.Event()
    on_request_to_end(stopping.set)
    # Only this user can enter a folder made by `mkdtemp`. It isn't in the data folder, because the path of a Unix
    # socket may have only some 100 bytes.
    folder = Path(tempfile.mkdtemp(prefix="caraway-"))
    module = ("-m", "caraway.apps.server.workers", "--folder", str(folder))
    address = ("--host", chosen.host, "--port", chosen.port)
    try:
        writer = keep(Worker(name="writer", arguments=module, stop_seconds=WRITER_END_S))
        readers = [
            keep(Worker(name=f"reader {number}", arguments=(*module, "--reader", str(number), *address)))
            for number in range(1, chosen.readers + 1)
        ]
        while not stopping.wait(LOOK_S) and writer.first_exit != REFUSED:
            pass
        well = end(readers)
        well &= end([writer])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if well and writer.first_exit != REFUSED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
