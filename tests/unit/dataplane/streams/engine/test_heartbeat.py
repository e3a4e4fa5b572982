import json
import os
import time
from pathlib import Path

from caraway.dataplane.streams.engine.heartbeat import Heartbeat, heartbeat
from caraway.dataplane.streams.engine.jobs import JobStatus
from caraway.state.model import JobState
from tests.timeouts import deadline_in


def test_what_it_says() -> None:
    jobs = {"a": JobStatus(state=JobState.FAILING, mode="real-time", error="broken", attempts=3, progress={"lag": 2})}
    assert heartbeat(ready=True, jobs=jobs, at_us=5) == {
        "pid": os.getpid(),
        "heartbeat_at_us": 5,
        "ready": True,
        "jobs": {
            "a": {
                "state": "failing",
                "mode": "real-time",
                "error": "broken",
                "attempts": 3,
                "progress": {"lag": 2},
            }
        },
    }


def test_it_is_written_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "run" / "engine.json"
    beat = Heartbeat(path)
    beat.start()
    deadline = deadline_in(10)
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    written = json.loads(path.read_text())
    assert beat.stop(10)
    assert written["ready"] is False
    assert abs(written["heartbeat_at_us"] / 1e6 - time.time()) < 10
