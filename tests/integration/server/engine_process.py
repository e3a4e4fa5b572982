"""An engine with Spark as a process of its own, for the jobs of a server that a test has started."""

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import psutil

from caraway.process.settings.settings import Settings
from caraway.process.settings.streams import SparkSettings
from tests.integration.engine.rig import is_gone
from tests.integration.server.server_process import ServerProcess
from tests.integration.spark.broker import jars

GONE_S = 30.0


class EngineProcess:
    """`python -m caraway.dataplane.streams.engine` for the jobs of a server. Nothing but the test starts it again."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "engine.log"
        found = server.settings
        spark = SparkSettings(
            master="local[64]",
            driver_memory="768m",
            checkpoint_interval_seconds=5,
            jars=tuple(jars().connector),
        )
        settings = Settings(data_dir=folder, kafka=found.kafka, postgres=found.postgres, spark=spark)
        self._environment = {**os.environ, **settings.environment()}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "caraway.dataplane.streams.engine"]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        below = psutil.Process(self._process.pid).children(recursive=True)
        assert any(process.name() == "java" for process in below), self.said()
        os.kill(self._process.pid, SIGKILL)
        assert self._process.wait() == -SIGKILL
        # Spark ends when it notices that the engine is gone, and may finish a batch before.
        for process in below:
            assert is_gone(process, GONE_S), self.said()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return self._log.read_text()[-4000:]
