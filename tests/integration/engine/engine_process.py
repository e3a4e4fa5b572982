"""An engine whose registry is a folder: `wanted` contains its jobs (pickled), `gone` the ids of those that never run
again, `reports` the engine's reports."""

import json
import logging
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from caraway.dataplane.streams.engine import phases
from caraway.dataplane.streams.engine.engine import Engine, stop_on_signals
from caraway.dataplane.streams.spark import jobs
from caraway.graph.plan.model import JobPlan
from caraway.process.settings.settings import load_settings
from caraway.state.registry import JobRegistry


class FolderRegistry(JobRegistry):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    def desired_jobs(self) -> tuple[JobPlan, ...]:
        jobs: tuple[JobPlan, ...] = tuple(pickle.loads((self._folder / "wanted").read_bytes()))  # noqa: S301 (our own file)
        return jobs

    @override
    def gone_jobs(self) -> frozenset[str]:
        gone = self._folder / "gone"
        return frozenset(gone.read_text().split()) if gone.exists() else frozenset()

    @override
    def report(
        self,
        job_id: str,
        *,
        state: str,
        mode: str,
        attempts: int,
        error: str = "",
        progress: Mapping[str, object] | None = None,
    ) -> None:
        line = {
            "job_id": job_id,
            "state": state,
            "mode": mode,
            "attempts": attempts,
            "error": error,
            "progress": progress,
        }
        with (self._folder / "reports").open("a") as reports:
            reports.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # With small batches a history of thousands of records goes through the same phases as one of millions.
    phases.BACKFILL_RECORDS, phases.LEVEL_RECORDS, jobs.MICRO_BATCH_ROWS = 5_000, 500, 2_000
    engine = Engine(load_settings(), FolderRegistry(Path(sys.argv[1])))
    stop_on_signals(engine)
    sys.exit(engine.run())
