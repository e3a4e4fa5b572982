"""The JVM of the engine: it lives exactly as long as this process, and there is only one in a data folder."""

import contextlib
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Self

from pyspark.sql import SparkSession

from caraway.config import Settings
from caraway.errors import UnavailableError
from caraway.spark.isolation import Limits
from caraway.spark.java import jvm_of, jvm_process
from caraway.spark.session import SessionSettings, caraway_jar, open_session

log = logging.getLogger(__name__)

# A JVM whose driver was killed is gone in a second; one that hangs on is somebody else's engine.
LOCK_SECONDS = 30.0
STOP_SECONDS = 3.0


@dataclass(slots=True)
class Driver:
    """A session, the process of its JVM, and the lock on the data folder that this JVM holds."""

    session: SparkSession
    process: Popen[bytes]
    lock: Any
    scratch: Path

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Start Spark; takes some seconds.

        Raises:
            UnavailableError: Another engine runs in this data folder.
        """
        scratches = settings.data_dir / "spark"
        scratch = scratches / str(os.getpid())
        session = open_session(
            SessionSettings(
                master=settings.spark.master,
                driver_memory=settings.spark.driver_memory,
                jars=[*settings.spark.jars, caraway_jar()],
                scratch=scratch,
                shuffle_partitions=settings.kafka.partitions,
                functions=Limits(seconds=settings.spark.function_seconds, memory_mb=settings.spark.function_memory_mb),
            )
        )
        jvm = jvm_of(session)
        jvm.io.caraway.Watchdog.follow(os.getpid())
        lock = _lock(jvm, settings.data_dir / "run" / "engine.lock")
        for left in scratches.iterdir():
            # With the lock held nobody else is at work here: these are from engines that were killed.
            if left != scratch:
                shutil.rmtree(left, ignore_errors=True)
        return cls(session, jvm_process(session), lock, scratch)

    @property
    def died(self) -> bool:
        """Whether the JVM is gone."""
        return self.process.poll() is not None

    def close(self) -> None:
        """End the JVM: by its own means if that goes quickly."""
        # py4j raises whatever it likes when the other side goes away.
        with contextlib.suppress(Exception):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(STOP_SECONDS)
        except TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _lock(jvm: Any, path: Path) -> Any:  # noqa: ANN401 (py4j has no types)
    """Let the JVM lock `path`: one that outlives its driver still works on the checkpoints, so the lock must be its."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channel = jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
    deadline = time.monotonic() + LOCK_SECONDS
    while (lock := channel.tryLock()) is None:
        if time.monotonic() > deadline:
            raise UnavailableError(f"another engine runs in this data folder: it holds {path}")
        time.sleep(0.1)
    return lock
