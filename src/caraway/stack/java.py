"""Find a Java that is new enough."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from caraway.stack.errors import JavaMissingError

OLDEST_JAVA = 17

INSTALL_JAVA = """\
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jdk-headless
  Fedora:          sudo dnf install java-17-openjdk-devel
  macOS:           brew install openjdk@17
If one is installed elsewhere, set JAVA_HOME to its folder."""


def find_java() -> Path:
    """Give the `java` of JAVA_HOME or of the PATH.

    Raises:
        JavaMissingError: There is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME ({home})" if home else "the PATH"
        raise JavaMissingError(
            f"Kafka and Spark need Java {OLDEST_JAVA} or newer; there is none in {where}.\n{INSTALL_JAVA}"
        )
    java = Path(found)
    version = java_version(java)
    if version is None or version < OLDEST_JAVA:
        what = "doesn't run" if version is None else f"is Java {version}"
        raise JavaMissingError(f"Kafka and Spark need Java {OLDEST_JAVA} or newer; {java} {what}.\n{INSTALL_JAVA}")
    return java


def java_version(java: Path) -> int | None:
    """Give the feature version of a `java` (8, 17, 21), or None if it can't be told."""
    try:
        # Every JDK since 9 has this file; to start a JVM for its version takes a tenth of a second.
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        try:
            text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
        except (OSError, subprocess.SubprocessError):
            return None
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
