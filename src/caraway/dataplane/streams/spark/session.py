"""The Spark session of an engine, with settings that were measured (docs/inside/jobs.md) and a small JVM."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from caraway.dataplane.streams.functions.children import Limits, limits_conf
from caraway.dataplane.streams.java.class_archives import ClassArchive
from caraway.dataplane.streams.spark.gateway import start_gateway
from caraway.dataplane.streams.spark.java import has_jvm

# The bounds of the JVM's memory beside its heap: compiled code, classes, buffers, and RocksDB. Java's defaults suit big
# servers: 240 MB of code, classes without a limit, and buffers of the size of the heap.
_CODE_CACHE = "96m"
_METASPACE = "320m"
_DIRECT_MEMORY = "128m"
_ROCKSDB_MB = "160"
# The time that a job in micro-batches waits before it polls Kafka again after it found no new records. With Spark's own
# 10 ms an idle job and its broker take 12% of a core; with this value they take 2.6%, and rows after a pause are read
# at most 0.1 s later (docs/inside/jobs.md). Jobs in real-time mode don't poll in this way.
_POLLING_DELAY = "100ms"
_LOCAL_SHUFFLE = "io.caraway.shuffle.LocalShuffle"
_REMOTE_SHUFFLE = "io.caraway.shuffle.EventDrivenShuffle"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        master: The Spark master; in local mode with a slot for every task of every job at once.
        driver_memory: The Java heap of the driver, such as `1g`.
        jars: All jars beside Spark's own: those of the Kafka connector, and Caraway's.
        scratch: The folder for files that the session needs only while it runs.
        shuffle_partitions: The number of tasks of a stateful operator; a checkpoint can't be read with another number.
        functions: The limits of users' functions.
        java_options: More options of the driver's JVM.
        conf: More of Spark's settings, which override Caraway's.
    """

    master: str
    driver_memory: str
    jars: Sequence[Path]
    scratch: Path
    shuffle_partitions: int = 1
    functions: Limits = field(default_factory=Limits)
    java_options: Sequence[str] = ()
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Return whether Spark runs inside the driver's process."""
        return self.master.startswith("local")


def caraway_jar() -> Path:
    """Return the jar of `jvm/`, which the package build compiles.

    Raises `FileNotFoundError` if the package was not built, and must be installed again.
    """
    jar = Path(str(files("caraway").joinpath("_jars/caraway-jvm.jar")))
    if not jar.is_file():
        raise FileNotFoundError(f"{jar} is missing: `uv sync` builds it in a checkout, and a wheel has it")
    return jar


def spark_classes(cache_dir: Path, jars: Sequence[Path]) -> ClassArchive:
    """Return the class archive of a driver with these jars."""
    return ClassArchive.of(cache_dir, "spark", jars)


def open_session(settings: SessionSettings) -> SparkSession:
    """Start a session, in a new JVM if this process has none; this takes some seconds.

    Raises:
        JavaMissingError: There is no Java that Spark runs on.
        UnavailableError: The JVM ended, or took too long.
    """
    settings.scratch.mkdir(parents=True, exist_ok=True)
    # Spark's Python workers must run this same interpreter. MALLOC_ARENA_MAX limits the arenas from which glibc
    # allocates memory; by default it makes an arena for each of the JVM's many threads, up to eight for each processor.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    if settings.local:
        # Without this address Spark would look up the machine's name, and listen on all addresses of the machine.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {"spark.app.name": "caraway", "spark.master": settings.master, **spark_conf(settings)}
    if not has_jvm():
        gateway = start_gateway(conf, settings.scratch)
        # `getOrCreate` makes a session on this context and takes over its settings.
        SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    return SparkSession.builder.config(map=dict(conf)).getOrCreate()


def spark_conf(settings: SessionSettings) -> Mapping[str, str]:
    """Return Spark's configuration."""
    jars = [str(jar) for jar in settings.jars]
    class_path = ":".join(jars)
    return {
        # Spark sends the jars of spark.jars to executors. The class paths have the same jars, so that they are there
        # before any class is loaded.
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": class_path,
        # With this setting Spark's ports require a secret, so that other users of this machine can't use them. In local
        # mode Spark makes the secret itself.
        **({"spark.authenticate": "true"} if settings.local else {"spark.executor.extraClassPath": class_path}),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(_java_options(settings)),
        "spark.local.dir": str(settings.scratch),
        "spark.sql.warehouse.dir": str(settings.scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        # In Spark's ANSI mode a single value, such as a zero divisor, would fail the whole job. Without it the value is
        # null, and the expression compiler handles it.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # By default this is the number of slots, which in local mode is much greater than that of cores.
        "spark.default.parallelism": str(settings.shuffle_partitions),
        # Spark's own shuffle of real-time mode buffers rows for 50 ms by default, so each stateful step would delay
        # rows by that time. If the shuffle checks for rows every millisecond instead, each stateful step takes 1% of a
        # core even without any rows. Caraway's classes pass a row on as soon as it arrives, `LocalShuffle` without any
        # sockets (docs/inside/jobs.md).
        "spark.shuffle.manager.incremental": _LOCAL_SHUFFLE if settings.local else _REMOTE_SHUFFLE,
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "10000",
        "spark.sql.streaming.pollingDelay": _POLLING_DELAY,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # All stateful operators of a JVM share RocksDB's caches and write buffers; otherwise each would take 100 MB for
        # itself.
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": _ROCKSDB_MB,
        # By default Spark counts the entries of its state, and for that reads each entry before it is written. The
        # reads take a fifth of the time of a stateful operator, and more when the state is restored at a start.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # A job may change between real-time mode and micro-batches and go on from its checkpoint. Spark allows that
        # only with this format of the state store's checkpoints, used from the job's first batch on.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        # For each file of a checkpoint Hadoop's own class starts a process, such as `chmod`, and the job stands still
        # meanwhile (decision 10). Spark's other checkpoint file manager would start one more process to look for links.
        "spark.hadoop.fs.file.impl": "io.caraway.files.LocalFiles",
        # Hadoop sets the modes of files by this mask, not by the umask of the process. Checkpoints contain rows, which
        # only this user may read.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # The number of progress reports that Spark keeps for each query, by default 100. Caraway reads only the last
        # one.
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # A job that starts reads the last snapshot of its state and replays the changes of all later batches. By
        # default Spark makes a snapshot after ten batches, so after a backfill a start replayed millions of changes:
        # with 3,000,000 keys it took 15.5 s instead of 4.3 s.
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
        # The executors' heartbeats carry the number of rows that tasks have read
        # (`caraway.dataplane.streams.spark.live`); by default they are 10 s apart.
        "spark.executor.heartbeatInterval": "2s",
        # Spark keeps finished jobs, stages and tasks for its web pages, by default up to 100,000 tasks. The web pages
        # are switched off, so few are kept.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "400",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "20",
        **limits_conf(settings.functions),
        "spark.python.daemon.module": "caraway.dataplane.streams.functions.daemon",
        "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
        **settings.conf,
    }


def _java_options(settings: SessionSettings) -> list[str]:
    # The serial collector takes the least memory, and on so small a heap its pauses are no longer than those of others.
    return [
        "-XX:+UseSerialGC",
        f"-XX:ReservedCodeCacheSize={_CODE_CACHE}",
        f"-XX:MaxMetaspaceSize={_METASPACE}",
        f"-XX:MaxDirectMemorySize={_DIRECT_MEMORY}",
        "-Xss512k",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={files('caraway.dataplane.streams.spark').joinpath('log4j2.properties')}",
        # The native libraries of RocksDB and Snappy are unpacked into this folder, and stay there when the JVM is
        # killed. The engine removes the folder at its next start.
        f"-Djava.io.tmpdir={settings.scratch}",
        *settings.java_options,
    ]
