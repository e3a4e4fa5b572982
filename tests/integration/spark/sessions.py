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


@contextmanager
def running_session(folder: Path) -> Iterator[SparkSession]:
    """Start a session, yield it, and stop it afterwards. A process can have only one."""
    used = [*jars().connector, caraway_jar()]
    settings = SessionSettings(
        master=f"local[{SLOTS}]",
        driver_memory="1g",
        jars=used,
        scratch=folder,
        java_options=spark_classes(load_settings().cache_dir, used).options(),
    )
    session = open_session(settings)
    try:
        yield session
    finally:
        session.stop()
