"""The wait until all jobs run."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from caraway.apps.demo.http import DemoConnection
from caraway.errors import UnavailableError

TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.2
REPORT_SECONDS = 5.0
SHOWN = 8


def wait_for_jobs(url: str, *, report: Callable[[str], None]) -> None:
    """Wait until all wanted jobs run.

    Events that are sent before wouldn't be lost, since jobs begin with the oldest event, but their features would come
    late. `report` is called every few seconds with a line about the jobs that don't run yet.

    Raises `UnavailableError` if no further job has started for two minutes, and `RemoteError` if the server refuses to
    answer.
    """
    started = reported_at = progressed_at = time.monotonic()
    fewest = math.inf
    with DemoConnection(url) as connection:
        while True:
            wanted = [job for job in connection.get("/status")["jobs"] if job["desired"] == "running"]
            waiting = [job for job in wanted if job["state"] != "running"]
            now = time.monotonic()
            if not waiting:
                report(f"{len(wanted)} jobs run, {now - started:.1f} s after the commit.")
                return
            if len(waiting) < fewest:
                fewest, progressed_at = len(waiting), now
            text = _shown(waiting)
            if now - progressed_at > TIMEOUT_SECONDS:
                raise UnavailableError(
                    f"these jobs don't run, and none has started for {TIMEOUT_SECONDS:.0f} s: {text}"
                )
            if now - reported_at >= REPORT_SECONDS:
                reported_at = now
                report(f"{now - started:6.1f} s  waiting for jobs to start: {text}")
            time.sleep(POLL_SECONDS)


def _shown(jobs: Sequence[dict[str, Any]]) -> str:
    """Return the first jobs with the first lines of their errors, and the number of the others."""
    shown = [f"{job['dataset']} ({(job['error'] or job['state']).splitlines()[0]})" for job in jobs[:SHOWN]]
    return ", ".join(shown) + (f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else "")
