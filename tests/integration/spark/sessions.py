"""A Spark session for tests."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.java import jvm_process
from caraway.dataplane.streams.spark.session import SessionSettings, caraway_jar, open_session, spark_classes
from caraway.process.settings.settings import load_settings
from tests.integration.spark.broker import jars

# A slot for every task of all jobs that run at the same time.
SLOTS = 512
# The file in which a JVM that crashes says why, and so many characters of it.
CRASH = "crash.txt"
REPORTED = 20_000


@contextmanager
def running_session(folder: Path) -> Iterator[SparkSession]:
    """Start a session, yield it, and stop it afterwards. A process can have only one."""
    session = _opened(folder)
    try:
        yield session
    finally:
        if (death := _death(session, folder)) is not None:
            raise AssertionError(death)
        session.stop()


class LastingSession:
    """The session of all tests of a process. If its JVM dies between two modules, the next module gets a new one.

    A JVM of many queries has died once in some hundred runs, with nothing running on it, and each later test failed.
    The reason is told, so that it can be found.
    """

    def __init__(self, new_folder: Callable[[], Path], tell: Callable[[str], object]) -> None:
        """Start nothing yet; each JVM gets a folder of its own, and the death of one is told."""
        self._new_folder = new_folder
        self._tell = tell
        self._session: SparkSession | None = None
        self._folder = Path()

    def get(self) -> SparkSession:
        """Return the session; start one if there is none that lives."""
        if self._session is not None:
            death = _death(self._session, self._folder)
            if death is None:
                return self._session
            self._tell(death)
            _forget(self._session)
        self._folder = self._new_folder()
        self._session = _opened(self._folder)
        return self._session

    def stop(self) -> None:
        """Stop the session, if one was started. `get` starts another one."""
        if self._session is None:
            return
        session, self._session = self._session, None
        if (death := _death(session, self._folder)) is not None:
            self._tell(death)
            return
        session.stop()


def tell(text: str) -> None:
    """Write a text to the standard error of the process, also while a test runner keeps what tests write."""
    sys.__stderr__.write(f"\n{text}\n")  # type: ignore[union-attr]
    sys.__stderr__.flush()  # type: ignore[union-attr]


def _opened(folder: Path) -> SparkSession:
    used = [*jars().connector, caraway_jar()]
    settings = SessionSettings(
        master=f"local[{SLOTS}]",
        driver_memory="1g",
        jars=used,
        scratch=folder,
        java_options=[*spark_classes(load_settings().cache_dir, used).options(), f"-XX:ErrorFile={folder}/{CRASH}"],
    )
    return open_session(settings)


def _death(session: SparkSession, folder: Path) -> str | None:
    """Return how the JVM of a session has died; None if it lives."""
    code = jvm_process(session).poll()
    if code is None:
        return None
    report = folder / CRASH
    told = report.read_text(errors="replace")[:REPORTED] if report.is_file() else "it left no report of a crash"
    return f"the JVM of the tests' Spark ended with code {code}: {told}"


def _forget(session: SparkSession) -> None:
    """Make PySpark forget the JVM of a session, which has died, so that it takes another one."""
    process = jvm_process(session)
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    context = SparkContext._active_spark_context
    with suppress(Exception):
        SparkSession._instantiatedSession = None
        context.stop()  # type: ignore[union-attr]
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
