"""An engine in a process of its own, which tests kill in many ways."""

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from caraway.graph.plan.model import JobPlan
from tests.integration.spark.broker import jars
from tests.timeouts import deadline_in

PROGRAM = Path(__file__).with_name("engine_process.py")


class Rig:
    """A data folder, its registry, and the engine that works in it."""

    def __init__(self, folder: Path, bootstrap_servers: str, **settings: str) -> None:
        self.folder = folder
        # The folder with the wanted jobs and the reports; several engines may share it.
        self.registry = folder
        self.program = PROGRAM
        self.arguments: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **os.environ,
            "CARAWAY_DATA_DIR": str(folder),
            "CARAWAY_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "CARAWAY_SPARK__MASTER": "local[64]",
            "CARAWAY_SPARK__DRIVER_MEMORY": "768m",
            "CARAWAY_SPARK__CHECKPOINT_INTERVAL_SECONDS": "5",
            "CARAWAY_SPARK__JARS": json.dumps([str(jar) for jar in jars().connector]),
            "PYTHONPATH": os.pathsep.join(sys.path),
            **settings,
        }

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def want(self, jobs: Sequence[JobPlan]) -> None:
        scratch = self.registry / "wanted.new"
        scratch.write_bytes(pickle.dumps(list(jobs)))
        scratch.replace(self.registry / "wanted")

    def start(self) -> None:
        with (self.folder / "engine.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(self.program), str(self.registry), *self.arguments],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def jvm(self) -> psutil.Process:
        return next(p for p in psutil.Process(self.process.pid).children(recursive=True) if p.name() == "java")

    def jvm_if_any(self) -> psutil.Process | None:
        """Return the JVM; None if it doesn't run yet, or no longer."""
        try:
            return self.jvm()
        except (StopIteration, psutil.NoSuchProcess):
            return None

    def heartbeat(self) -> dict[str, Any]:
        try:
            beat: dict[str, Any] = json.loads((self.folder / "run" / "engine.json").read_text())
        except FileNotFoundError:
            return {"pid": None, "ready": False, "jobs": {}}
        return beat

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], seconds: float = 360) -> None:
        """Wait until the heartbeat of this very process fulfils `condition`."""
        deadline = deadline_in(seconds)
        while True:
            beat = self.heartbeat()
            if beat["pid"] == self.process.pid and condition(beat):
                return
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"{beat}\n{self.log()}"
            time.sleep(0.1)

    def wait_until_running(self, count: int, seconds: float = 360) -> None:
        self.wait_for(lambda beat: [job["state"] for job in beat["jobs"].values()] == ["running"] * count, seconds)

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.registry / "reports").read_text().splitlines()]

    def log(self) -> str:
        return (self.folder / "engine.log").read_text()[-4000:]

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def is_gone(process: psutil.Process, seconds: float) -> bool:
    """Return whether a process ends in time; a zombie that only waits for its new parent has ended."""
    deadline = deadline_in(seconds)
    while time.monotonic() < deadline:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
