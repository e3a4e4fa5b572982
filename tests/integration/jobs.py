"""The real engine in a thread, on the Spark session that the tests of a process share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from caraway.dataplane.streams.engine.driver import Driver
from caraway.dataplane.streams.engine.engine import Engine
from caraway.dataplane.streams.spark.java import jvm_of, jvm_process
from caraway.process.settings.settings import Settings
from caraway.state.database import connect
from caraway.state.ownership.members import ENGINES, Member
from caraway.state.registry import JobRegistry
from tests.timeouts import scaled

STOP_SECONDS = 60.0
CHECKPOINT_SECONDS = 5.0


class SharedDriver(Driver):
    """A driver whose JVM outlives it."""

    def close(self) -> None:
        """Release the lock on the data folder."""
        self.channel.close()


@contextmanager
def running_jobs(settings: Settings, session: SparkSession) -> Iterator[None]:
    """Run the jobs of a deployment; `settings` are those of its server."""

    def opened(settings: Settings) -> Driver:
        path = settings.data_dir / "run" / "engine.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        channel = jvm_of(session).java.io.RandomAccessFile(str(path), "rw").getChannel()
        return SharedDriver(session, jvm_process(session), channel, None, path, Path())

    # An erasure downstream waits for the positions in checkpoints, which must take seconds only in a test.
    spark = settings.spark.model_copy(update={"checkpoint_interval_seconds": CHECKPOINT_SECONDS})
    settings = settings.model_copy(update={"spark": spark})
    assert settings.postgres.url is not None
    database = connect(settings.postgres.url)
    member = Member(engine=database, group=ENGINES, node=f"test:{settings.data_dir}")
    engine = Engine(settings, JobRegistry(database), member, open_driver=opened)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as error:  # noqa: BLE001 (the test raises it)
            failures.append(error)

    thread = threading.Thread(target=run, name="engine", daemon=True)
    thread.start()
    try:
        yield
    finally:
        engine.stop()
        thread.join(scaled(STOP_SECONDS))
        assert not thread.is_alive(), "the engine of the tests doesn't stop"
        database.dispose()
        if failures:
            raise failures[0]
