"""Archives of loaded and checked Java classes, by which Kafka and Spark start sooner.

An archive belongs to one class path and one build of Java. The JVM checks both, and works without an archive that is
missing, incomplete or another's; so the archives only ever save time.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FOLDER = "classes"
# Suppresses the JVM's messages about classes that it leaves out of an archive, and about an archive that it can't use.
# Neither is an error: the JVM then loads those classes from their jars.
_QUIETLY = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one program.

    Attributes:
        path: The file of the archive, which need not exist.
    """

    path: Path

    @classmethod
    def of(cls, cache_dir: Path, program: str, jars: Iterable[Path]) -> Self:
        """Return the archive of a program with these jars, which is a file below `cache_dir`."""
        paths = "\n".join(str(jar) for jar in jars)
        return cls(cache_dir / FOLDER / f"{program}-{hashlib.sha256(paths.encode()).hexdigest()[:12]}.jsa")

    def options(self) -> tuple[str, ...]:
        """Return the options of a JVM that uses the archive."""
        return (f"-XX:SharedArchiveFile={self.path}", *_QUIETLY)

    @property
    def unfinished(self) -> Path:
        """The file to which the archive is written before it is complete."""
        return self.path.with_suffix(".making")

    def options_to_make(self) -> tuple[str, ...]:
        """Return the options of a JVM that writes the archive, to `unfinished`, when it ends."""
        return (f"-XX:ArchiveClassesAtExit={self.unfinished}", *_QUIETLY)
