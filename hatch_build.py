"""Compile what Caraway generates: Python from `proto/`, a jar from `jvm/`.

hatchling calls `CustomBuildHook` when it builds a wheel or an editable install; `python hatch_build.py` does the
same in place for somebody who is editing those sources. What is up to date is not built again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
PROTO_SOURCES = ROOT / "proto"
PROTO_PACKAGE = "caraway.graph.pb"
PROTO_TARGET = ROOT / "src" / "caraway" / "graph" / "pb"
JAVA_SOURCES = ROOT / "jvm" / "src"
JAVA_TARGET = ROOT / "src" / "caraway" / "_jars"
JAVA_RELEASE = 17

# A jar's entries get this date, so that the same sources give the same bytes.
JAR_DATE = (1980, 1, 1, 0, 0, 0)

GENERATED_IMPORT = re.compile(
    r"^(?:from (?P<package>[\w.]+) )?import (?P<module>\w+_pb2)(?P<alias> as \w+)?$", re.MULTILINE
)

NO_JDK = f"""\
Caraway compiles a small Java library and found no JDK (Java {JAVA_RELEASE} or newer, with javac).
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jdk-headless
  Fedora:          sudo dnf install java-17-openjdk-devel
  macOS:           brew install openjdk@17
If one is installed elsewhere, set JAVA_HOME to its folder."""


class BuildError(Exception):
    """A build step that failed, with a message for the person who builds."""


class CustomBuildHook(BuildHookInterface[Any]):
    """Run both compilers before hatchling collects the files of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
        """Generate the files; called by hatchling before a build."""
        if self.target_name == "wheel":
            build()


def build(*, force: bool = False) -> None:
    """Generate everything that is out of date.

    Args:
        force: Generate it even if it is up to date.

    Raises:
        BuildError: A compiler is missing or refuses the sources.
    """
    compile_protos(force=force)
    compile_java(force=force)


def compile_protos(*, force: bool = False) -> None:
    """Compile `proto/**/*.proto` into the package `caraway.graph.pb`, one module and one type stub a file."""
    sources = sorted(PROTO_SOURCES.rglob("*.proto"))
    if not sources:
        return
    digest = _digest([*sources, Path(__file__)], extra=metadata.version("grpcio-tools"))
    if not force and _is_built(PROTO_TARGET, digest):
        return
    from grpc_tools import protoc  # noqa: PLC0415 (a checkout without proto/ builds without it)

    with tempfile.TemporaryDirectory(dir=_made(PROTO_TARGET.parent)) as scratch:
        output = Path(scratch, "pb")
        output.mkdir()
        well_known = Path(str(importlib.util.find_spec("grpc_tools").origin)).parent / "_proto"  # type: ignore[union-attr]
        arguments = ["protoc", f"-I{PROTO_SOURCES}", f"-I{well_known}", f"--python_out={output}", f"--pyi_out={output}"]
        if protoc.main([*arguments, *map(str, sources)]) != 0:
            message = "protoc refused a file in proto/; its message stands above."
            raise BuildError(message)
        for generated in [*output.rglob("*_pb2.py"), *output.rglob("*_pb2.pyi")]:
            generated.write_text(GENERATED_IMPORT.sub(_absolute_import, generated.read_text()))
        for folder in [output, *(path for path in output.rglob("*") if path.is_dir())]:
            (folder / "__init__.py").write_text('"""Generated from proto/ by hatch_build.py."""\n')
        _replace(PROTO_TARGET, output, digest)


def compile_java(*, force: bool = False) -> None:
    """Compile `jvm/src/**/*.java` against PySpark's jars into `caraway/_jars/caraway-jvm.jar`."""
    sources = sorted(JAVA_SOURCES.rglob("*.java"))
    if not sources:
        return
    digest = _digest([*sources, Path(__file__)], extra=metadata.version("pyspark"))
    if not force and _is_built(JAVA_TARGET, digest):
        return
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        message = "PySpark is not installed, and Caraway's Java part is compiled against its jars: pip install pyspark"
        raise BuildError(message)
    jars = Path(spark.origin).parent / "jars" / "*"
    with tempfile.TemporaryDirectory(dir=_made(JAVA_TARGET.parent)) as scratch:
        classes, output = Path(scratch, "classes"), Path(scratch, "_jars")
        output.mkdir()
        options = ["--release", str(JAVA_RELEASE), "-encoding", "UTF-8", "-Xlint:all,-processing,-serial,-classfile"]
        command = [_javac(), *options, "-nowarn", "-cp", str(jars), "-d", str(classes), *map(str, sources)]
        if subprocess.run(command, check=False).returncode != 0:
            message = "javac refused the sources in jvm/src; its messages stand above."
            raise BuildError(message)
        with zipfile.ZipFile(output / "caraway-jvm.jar", "w", zipfile.ZIP_DEFLATED) as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix(), JAR_DATE), path.read_bytes())
        _replace(JAVA_TARGET, output, digest)


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=str(Path(home, "bin"))) if home else None
    compiler = compiler or shutil.which("javac")
    if compiler is None:
        raise BuildError(NO_JDK)
    return compiler


def _absolute_import(match: re.Match[str]) -> str:
    # protoc writes imports relative to proto/, and the generated package lives below caraway.
    package, module, alias = match["package"], match["module"], match["alias"] or ""
    if package is not None and package.startswith("google."):
        return match[0]
    return f"from {PROTO_PACKAGE}{f'.{package}' if package else ''} import {module}{alias}"


def _digest(paths: list[Path], *, extra: str) -> str:
    digest = hashlib.sha256(extra.encode())
    for path in paths:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _is_built(target: Path, digest: str) -> bool:
    stamp = target / ".built"
    return stamp.is_file() and stamp.read_text() == digest


def _replace(target: Path, output: Path, digest: str) -> None:
    # The stamp goes in first and the folder is exchanged as a whole: a build that is killed leaves no half of itself.
    (output / ".built").write_text(digest)
    if target.exists():
        shutil.move(target, output.parent / "old")
    output.rename(target)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    try:
        build(force="--force" in sys.argv[1:])
    except BuildError as error:
        sys.exit(str(error))
