"""A Spark session for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from caraway.spark.session import SessionSettings, caraway_jar, open_session
from tests.integration.spark.broker import jars

# A slot for every task of all jobs that run at once.
SLOTS = 512


@contextmanager
def running_session(folder: Path) -> Iterator[SparkSession]:
    """Give a session, and end it afterwards. There is one in a process."""
    settings = SessionSettings(
        master=f"local[{SLOTS}]", driver_memory="1g", jars=[*jars().connector, caraway_jar()], scratch=folder
    )
    session = open_session(settings)
    try:
        yield session
    finally:
        session.stop()
