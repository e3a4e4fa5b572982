"""The Spark session of an engine: settings that were measured (docs/spark.md), and a JVM that stays small."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from caraway.class_archives import ClassArchive
from caraway.spark.gateway import start_gateway
from caraway.spark.isolation import Limits, limits_conf
from caraway.spark.java import has_jvm

# What the JVM may take beside its heap. Java's own bounds are for big servers: 240 MB of code cache, no limit for the
# rest.
_CODE_CACHE = "96m"
_METASPACE = "320m"
_DIRECT_MEMORY = "128m"
_ROCKSDB_MB = "160"
# How long a job in micro-batches waits before it asks Kafka again, if there was nothing new. With Spark's own 10 ms an
# idle job takes 12% of a core (with what the broker does for it); so it takes 2.6%, and rows that come after a pause
# are taken up 0.1 s later at most (docs/streaming.md). Jobs in real-time mode don't ask this way.
_POLLING_DELAY = "100ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session needs to know.

    Attributes:
        master: Spark master; in local mode with a slot for every task of every job at once.
        driver_memory: Java heap of the driver, such as `1g`.
        jars: All jars beside Spark's own: the Kafka connector, Caraway's.
        scratch: Folder for files that die with the session.
        shuffle_partitions: Tasks of a stateful operator; a checkpoint can't be read with another number.
        functions: What a user's function may take.
        java_options: More options of the driver's JVM.
        conf: More of Spark's settings, which go before ours.
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
        """Whether Spark runs inside the driver's process."""
        return self.master.startswith("local")


def caraway_jar() -> Path:
    """Return the jar of `jvm/`, which the package build compiles.

    Raises:
        FileNotFoundError: The package was not built: reinstall it.
    """
    jar = Path(str(files("caraway").joinpath("_jars/caraway-jvm.jar")))
    if not jar.is_file():
        raise FileNotFoundError(f"{jar} is missing: `uv sync` builds it in a checkout, and a wheel has it")
    return jar


def spark_classes(cache_dir: Path, jars: Sequence[Path]) -> ClassArchive:
    """Name the archive of the classes of a driver with these jars."""
    return ClassArchive.of(cache_dir, "spark", jars)


def open_session(settings: SessionSettings) -> SparkSession:
    """Start a JVM, or take the one that this process has, and a session in it; takes some seconds.

    Raises:
        JavaMissingError: There is no Java that Spark runs on.
        UnavailableError: The JVM ended, or took too long.
    """
    settings.scratch.mkdir(parents=True, exist_ok=True)
    # Workers must run this very interpreter; glibc would give each of the many threads an arena of its own.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    if settings.local:
        # Spark would look up the machine's name otherwise, and listen on all addresses.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {"spark.app.name": "caraway", "spark.master": settings.master, **spark_conf(settings)}
    if not has_jvm():
        gateway = start_gateway(conf, settings.scratch)
        # Spark takes the settings that it has from this context.
        SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    return SparkSession.builder.config(map=dict(conf)).getOrCreate()


def spark_conf(settings: SessionSettings) -> Mapping[str, str]:
    """Return Spark's configuration."""
    jars = [str(jar) for jar in settings.jars]
    class_path = ":".join(jars)
    return {
        # On spark.jars they are sent to executors, on the class paths they are there before a class is loaded.
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": class_path,
        # In local mode Spark makes a secret of its own, which its ports on this machine ask for.
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
        # What a single value can do wrong is the expression compiler's affair; a job must not fail for a zero divisor.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # By default as many as there are slots, which in local mode are many more than cores.
        "spark.default.parallelism": str(settings.shuffle_partitions),
        # The streaming shuffle holds its buffers for 50 ms by default; this is what makes stateful jobs fast.
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
        "spark.sql.streaming.pollingDelay": _POLLING_DELAY,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # All stateful operators of a JVM share these caches and buffers; each would take 100 MB for itself.
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": _ROCKSDB_MB,
        # One checkpoint serves both modes only with this format, and only if it has been so from the first batch on.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        # Hadoop would start a process for each file of a checkpoint, while the job stands still (decision 10). Spark's
        # other kind of manager starts one to look for links besides.
        "spark.hadoop.fs.file.impl": "io.caraway.files.LocalFiles",
        # Hadoop sets modes itself; checkpoints hold rows, which are for this user alone.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Progress of the last batches is kept for each query; two are looked at.
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # What tasks have read comes with these (`caraway.spark.live`); by default they are 10 s apart.
        "spark.executor.heartbeatInterval": "2s",
        # Kept for Spark's own pages, which nobody looks at; by default up to 100,000 tasks.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "400",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "20",
        **limits_conf(settings.functions),
        "spark.python.daemon.module": "caraway.spark.daemon",
        "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
        **settings.conf,
    }


def _java_options(settings: SessionSettings) -> list[str]:
    # The serial collector takes the least memory, and on a heap of this size it pauses no longer than the others.
    return [
        "-XX:+UseSerialGC",
        f"-XX:ReservedCodeCacheSize={_CODE_CACHE}",
        f"-XX:MaxMetaspaceSize={_METASPACE}",
        f"-XX:MaxDirectMemorySize={_DIRECT_MEMORY}",
        "-Xss512k",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={files('caraway.spark').joinpath('log4j2.properties')}",
        # RocksDB's and Snappy's native libraries are unpacked here, and stay behind when the JVM is killed.
        f"-Djava.io.tmpdir={settings.scratch}",
        *settings.java_options,
    ]
