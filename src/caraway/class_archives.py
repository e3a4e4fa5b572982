"""Archives of what Java's classes are after they were loaded and checked: Kafka and Spark start sooner.

An archive belongs to one class path and one build of Java. The JVM checks both, and does without an archive that isn't
there, isn't whole or isn't its own; so what follows only ever saves time.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FOLDER = "classes"
# What the JVM says of classes that it leaves out, or of an archive that it does without.
_QUIETLY = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one program.

    Attributes:
        path: Where it is, or would be.
    """

    path: Path

    @classmethod
    def of(cls, cache_dir: Path, program: str, jars: Iterable[Path]) -> Self:
        """Name the archive of a program and its jars in the folder of what can be made again."""
        paths = "\n".join(str(jar) for jar in jars)
        return cls(cache_dir / FOLDER / f"{program}-{hashlib.sha256(paths.encode()).hexdigest()[:12]}.jsa")

    def options(self) -> tuple[str, ...]:
        """Return the options of a JVM that uses it."""
        return (f"-XX:SharedArchiveFile={self.path}", *_QUIETLY)

    @property
    def unfinished(self) -> Path:
        """Where it is until it is whole."""
        return self.path.with_suffix(".making")

    def options_to_make(self) -> tuple[str, ...]:
        """Return the options of a JVM that makes it, `unfinished`, when it ends."""
        return (f"-XX:ArchiveClassesAtExit={self.unfinished}", *_QUIETLY)
