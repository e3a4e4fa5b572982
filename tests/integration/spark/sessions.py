"""A Spark session for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from caraway.config.settings import load_settings
from caraway.spark.session import SessionSettings, caraway_jar, open_session, spark_classes
from tests.integration.spark.broker import jars

# A slot for every task of all jobs that run at the same time.
SLOTS = 512
# The file in which a JVM that crashes says why, and so many characters of it.
CRASH = "crash.txt"
REPORTED = 20_000


@contextmanager
def running_session(folder: Path) -> Iterator[SparkSession]:
    """Start a session, yield it, and stop it afterwards. A process can have only one."""
    used = [*jars().connector, caraway_jar()]
    settings = SessionSettings(
        master=f"local[{SLOTS}]",
        driver_memory="1g",
        jars=used,
        scratch=folder,
        java_options=[*spark_classes(load_settings().cache_dir, used).options(), f"-XX:ErrorFile={folder}/{CRASH}"],
    )
    session = open_session(settings)
    jvm = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        yield session
    finally:
        code = jvm.poll()
        if code is not None:
            # All later tests of the session have failed for this reason, so it is worth its lines.
            report = folder / CRASH
            told = report.read_text(errors="replace")[:REPORTED] if report.is_file() else "it left no report of a crash"
            raise AssertionError(f"the JVM of the tests' Spark ended with code {code}: {told}")
        session.stop()
