"""The JVM of the engine: it ends when this process ends, and a data folder has at most one."""

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

from caraway.dataplane.streams.functions.children import Limits
from caraway.dataplane.streams.spark.java import jvm_of, jvm_process
from caraway.dataplane.streams.spark.session import SessionSettings, caraway_jar, open_session, spark_classes
from caraway.dataplane.topics.credentials import java_properties
from caraway.errors import UnavailableError
from caraway.process.confinement.configured import confinement_of
from caraway.process.settings.settings import Settings

log = logging.getLogger(__name__)

# A start waits at most this many seconds for the lock on the data folder. The JVM of a killed driver ends within a
# second, so a JVM that keeps the lock for longer belongs to another running engine.
LOCK_SECONDS = 30.0
STOP_SECONDS = 3.0


_EXECUTORS_OPTIONS = "spark.executor.extraJavaOptions"


def _conf(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark that the deployment gives, and what executors need for their clients of Kafka."""
    conf = dict(setting.split("=", 1) for setting in settings.spark.conf)
    options = " ".join([conf.get(_EXECUTORS_OPTIONS, ""), *java_properties(settings.kafka)]).strip()
    return {**conf, _EXECUTORS_OPTIONS: options} if options else conf


@dataclass(slots=True)
class Driver:
    """A session, the process of its JVM, and the lock on the data folder that this JVM holds or waits for."""

    session: SparkSession
    process: Popen[bytes]
    channel: Any
    lock: Any
    lock_path: Path
    scratch: Path

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Start Spark, which takes some seconds; wait up to half a minute while another JVM has the lock."""
        scratches = settings.data_dir / "spark"
        scratch = scratches / str(os.getpid())
        jars = [*settings.spark.jars, caraway_jar()]
        session = open_session(
            SessionSettings(
                master=settings.spark.master,
                driver_memory=settings.spark.driver_memory,
                jars=jars,
                java_options=[
                    *spark_classes(settings.cache_dir, jars).options(),
                    *java_properties(settings.kafka),
                ],
                scratch=scratch,
                shuffle_partitions=settings.kafka.partitions,
                functions=Limits(
                    seconds=settings.spark.function_seconds,
                    memory_mb=settings.spark.function_memory_mb,
                    confinement=confinement_of(settings),
                ),
                conf=_conf(settings),
            )
        )
        jvm = jvm_of(session)
        jvm.io.caraway.Watchdog.follow(os.getpid())
        path = settings.data_dir / "run" / "engine.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is held by the JVM instead of this process, since the JVM may outlive this process and then still
        # writes to the checkpoints.
        channel = jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
        driver = cls(session, jvm_process(session), channel, None, path, scratch)
        deadline = time.monotonic() + LOCK_SECONDS
        while not driver.has_lock() and time.monotonic() < deadline:
            time.sleep(0.1)
        for left in scratches.iterdir():
            # While this JVM holds the lock, no other engine works in this data folder, so the other scratch folders are
            # leftovers of killed engines.
            if left != scratch and driver.has_lock():
                shutil.rmtree(left, ignore_errors=True)
        return driver

    def has_lock(self) -> bool:
        """Return whether this engine holds the lock on its data folder; take the lock if it is free."""
        if self.lock is None:
            self.lock = self.channel.tryLock()
        return self.lock is not None

    def require_lock(self) -> None:
        """Raise `UnavailableError` if another engine runs in this data folder and holds the lock."""
        if not self.has_lock():
            raise UnavailableError(f"another engine runs in this data folder: it holds {self.lock_path}")

    @property
    def died(self) -> bool:
        """True if the JVM has ended."""
        return self.process.poll() is not None

    def close(self) -> None:
        """End the JVM: ask it to, and kill it if it takes too long."""
        # The JVM ends when its standard input is closed. An error of that call, such as a broken pipe, must not prevent
        # the kill below.
        with contextlib.suppress(Exception):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(STOP_SECONDS)
        except TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)
