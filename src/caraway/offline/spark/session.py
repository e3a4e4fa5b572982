"""The Spark session of an offline query, which lasts as long as the query."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired

from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.java import jvm_process
from caraway.dataplane.streams.spark.session import SessionSettings, caraway_jar, open_session, spark_classes
from caraway.offline.queries.places import spark_folder
from caraway.process.scratch import ScratchFolder, sweep
from caraway.process.settings.settings import Settings

STOP_SECONDS = 5.0
# The number of tasks that a cluster is assumed to run at a time, if `spark.default.parallelism` isn't set.
TASKS_OF_A_CLUSTER = 64
# The number of pieces, of up to some megabytes each, that are handed to a task's process together.
_PIECES_PER_BATCH = "8"


@contextmanager
def scratch_session(settings: Settings) -> Iterator[SparkSession]:
    """Yield a session with a folder of temporary files of its own, which is removed afterwards; see `offline_session`.

    Folders of sessions whose processes were killed are removed before.
    """
    base = spark_folder(settings)
    base.mkdir(parents=True, exist_ok=True)
    sweep(base)
    with ScratchFolder("spark", base) as scratch, offline_session(settings, scratch.path / "session") as spark:
        yield spark


@contextmanager
def offline_session(settings: Settings, scratch: Path) -> Iterator[SparkSession]:
    """Yield a session, and end its JVM afterwards.

    Args:
        settings: The settings of the server.
        scratch: A folder for the files of the session.

    Raises:
        JavaMissingError: There is no Java that Spark runs on.
        UnavailableError: The JVM ended, or took too long.
    """
    master = settings.offline.spark_master
    conf = {
        # Spark's own daemon starts the processes of tasks, without a confinement, since they run the platform's own
        # code only. Users' functions run in processes of their own, which may only compute.
        "spark.python.daemon.module": "pyspark.daemon",
        "spark.python.use.daemon": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": _PIECES_PER_BATCH,
        "spark.ui.enabled": "false",
    }
    if master.startswith("local"):
        # As many tasks run as there are processors, so each needs one thread only.
        os.environ["POLARS_MAX_THREADS"] = "1"
    else:
        given = settings.environment() | {"POLARS_MAX_THREADS": "1"}
        conf |= {f"spark.executorEnv.{name}": value for name, value in given.items()}
        # Spark hides values by the names of their settings. Names such as CARAWAY_POSTGRES__URL don't tell that the
        # value has a password, so all settings of Caraway are hidden.
        conf["spark.redaction.regex"] = "(?i)secret|password|token|access[.]?key|caraway"
    tasks = os.cpu_count() or 1 if master.startswith("local") else TASKS_OF_A_CLUSTER
    jars = [*settings.spark.jars, caraway_jar()]
    session = open_session(
        SessionSettings(
            master=master,
            driver_memory=settings.offline.spark_driver_memory,
            jars=jars,
            java_options=spark_classes(settings.cache_dir, jars).options(),
            scratch=scratch,
            shuffle_partitions=tasks,
            conf=conf | dict(setting.split("=", 1) for setting in settings.offline.spark_conf),
        )
    )
    process = jvm_process(session)
    try:
        yield session
    finally:
        # If the JVM has died, ending the session raises errors of several kinds.
        with suppress(Exception):
            session.stop()
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(STOP_SECONDS)
        except TimeoutExpired:
            process.kill()
            process.wait()
