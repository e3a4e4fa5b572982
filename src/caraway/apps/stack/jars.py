"""The Java libraries that a stack needs beside PySpark's own: Kafka's broker and Spark's Kafka connector."""

from dataclasses import dataclass
from pathlib import Path

from caraway.dataplane.streams.java.cache import verified
from caraway.dataplane.streams.java.ivy import Progress
from caraway.dataplane.streams.java.lock import read_lock
from caraway.process.settings.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Files on this machine, checked.

    Attributes:
        broker: Class path of the Kafka broker.
        connector: Jars of Spark's Kafka source and sink.
    """

    broker: tuple[Path, ...]
    connector: tuple[Path, ...]


def ensure_jars(settings: Settings, on_progress: Progress | None = None) -> JarSet:
    """Return the jars; fetch and check those that are missing.

    Raises:
        JarsError: A jar can't be fetched or differs from its digest; the text names it.
        JavaMissingError: A jar must be fetched, and there is no Java to do it.
    """
    wanted = tuple(jar for jar in read_lock() if jar.uses & {"broker", "connector"})
    files = verified(settings.cache_dir / "jars", wanted, settings.jars.ivy_settings, on_progress)
    found = dict(zip(wanted, files, strict=True))
    return JarSet(
        broker=tuple(path for jar, path in found.items() if "broker" in jar.uses),
        connector=tuple(path for jar, path in found.items() if "connector" in jar.uses),
    )
