"""The engine's heartbeat: a file with the state of its jobs, which it rewrites every second while it works."""

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from caraway.dataplane.streams.engine.jobs import JobStatus
from caraway.process.private_files import write_whole
from caraway.process.recurring import Recurring

BEAT_SECONDS = 1.0
# A round of the engine's loop takes milliseconds. If no round has ended for these seconds, the loop hangs, and the
# heartbeat stops.
HUNG_SECONDS = 30.0


class Heartbeat(Recurring):
    """Writes the heartbeat file from a thread, as long as `alive` is called often enough."""

    def __init__(self, path: Path) -> None:
        """Write to `path`, whose folder is created.

        When it is stopped, the file stays, and readers see by its age that the engine has ended.
        """
        super().__init__("heartbeat", self._beat, BEAT_SECONDS, at_once=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._ready = False
        self._jobs: Mapping[str, JobStatus] = {}
        self._alive_at = time.monotonic()

    def alive(self, *, ready: bool, jobs: Mapping[str, JobStatus]) -> None:
        """Note that the loop has made a round, and the state of the jobs."""
        with self._lock:
            self._ready, self._jobs, self._alive_at = ready, jobs, time.monotonic()

    def _beat(self) -> None:
        with self._lock:
            # Before the loop's first round, while Spark starts, the absence of rounds is no sign of a hang.
            hung = self._ready and time.monotonic() - self._alive_at > HUNG_SECONDS
            beat = heartbeat(ready=self._ready, jobs=self._jobs, at_us=time.time_ns() // 1000)
        if not hung:
            write_whole(self._path, json.dumps(beat).encode())


def heartbeat(*, ready: bool, jobs: Mapping[str, JobStatus], at_us: int) -> dict[str, object]:
    """Return the content of the file."""
    return {
        "pid": os.getpid(),
        "heartbeat_at_us": at_us,
        "ready": ready,
        "jobs": {job_id: asdict(status) for job_id, status in jobs.items()},
    }
