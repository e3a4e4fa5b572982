"""Compile what Caraway generates: Python from `proto/`, a jar from `jvm/`.

hatchling calls `CustomBuildHook` when it builds a wheel or an editable install; `python hatch_build.py` does the
same in place for somebody who is editing those sources. What is up to date is not built again.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
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


def compile_java(*, force: bool = False, compiler: Sequence[str] = (), target: Path = JAVA_TARGET) -> None:
    """Compile `jvm/src/**/*.java` against PySpark's jars into `caraway-jvm.jar`.

    Args:
        force: Compile even if the jar is up to date.
        compiler: The command to use; none: the one that `java_compiler` chooses.
        target: The folder of the jar.

    Raises:
        BuildError: There is no compiler, or it refuses the sources.
    """
    sources = sorted(JAVA_SOURCES.rglob("*.java"))
    if not sources:
        return
    digest = _digest([*sources, Path(__file__)], extra=metadata.version("pyspark"))
    if not force and _is_built(target, digest):
        return
    with tempfile.TemporaryDirectory(dir=_made(target.parent)) as scratch:
        classes, output = Path(scratch, "classes"), Path(scratch, "_jars")
        output.mkdir()
        class_path = os.pathsep.join(map(str, sorted(_spark_jars().glob("*.jar"))))
        command = [*(compiler or java_compiler()), "-cp", class_path, "-d", str(classes), *map(str, sources)]
        if subprocess.run(command, check=False).returncode != 0:
            message = f"{command[0]} could not compile the sources in jvm/src; its messages stand above."
            raise BuildError(message)
        with zipfile.ZipFile(output / "caraway-jvm.jar", "w", zipfile.ZIP_DEFLATED) as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix(), JAR_DATE), path.read_bytes())
        _replace(target, output, digest)


def java_compiler() -> list[str]:
    """Return the command of a compiler for Java 17: javac if there is one, else Eclipse's, which is fetched.

    Raises:
        BuildError: The compiler can't be fetched, or there is no Java to run it.
    """
    return javac() or eclipse_compiler()


def javac() -> list[str]:
    """Return the command of the javac of JAVA_HOME, else of the PATH; nothing if there is none that is new enough."""
    runtime = _bare("caraway.dataplane.streams.java.runtime")
    home = os.environ.get("JAVA_HOME")
    for found in (shutil.which("javac", path=str(Path(home, "bin"))) if home else None, shutil.which("javac")):
        if found is not None and (runtime.java_version(Path(found).resolve().with_name("java")) or 0) >= JAVA_RELEASE:
            # A program that runs for seconds needs neither Java's optimising compiler nor several threads that free
            # memory: without them it takes half of the processor's time.
            quick = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
            return [found, *quick, "--release", str(JAVA_RELEASE), "-encoding", "UTF-8", "-nowarn"]
    return []


def eclipse_compiler() -> list[str]:
    """Return the command of Eclipse's compiler: a jar of the lock that any Java runs, also one without javac.

    Raises:
        BuildError: It can't be fetched, or there is no Java to run it.
    """
    lock, cache, runtime = (_bare(f"caraway.dataplane.streams.java.{name}") for name in ("lock", "cache", "runtime"))
    errors = _bare("caraway.dataplane.streams.java.errors")
    wanted = tuple(jar for jar in lock.read_lock() if "compiler" in jar.uses)
    folder = Path(os.environ.get("CARAWAY_CACHE_DIR") or Path.home() / ".cache" / "caraway") / "jars"
    settings = os.environ.get("CARAWAY_JARS__IVY_SETTINGS")
    try:
        [jar] = cache.verified(folder, wanted, Path(settings) if settings else None)
        java = runtime.find_java()
    except (errors.JavaMissingError, errors.JarsError) as error:
        raise BuildError(str(error)) from error
    # Not --release: for that it needs a file of the JDK. So a method that came after Java 17 isn't noticed here; javac,
    # which CI has, refuses it.
    options = ["-source", str(JAVA_RELEASE), "-target", str(JAVA_RELEASE), "-proc:none"]
    return [str(java), "-Xmx512m", "-jar", str(jar), *options, "-encoding", "UTF-8", "-nowarn"]


def _spark_jars() -> Path:
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        message = "PySpark is not installed, and Caraway's Java part is compiled against its jars: pip install pyspark"
        raise BuildError(message)
    return Path(spark.origin).parent / "jars"


def _bare(name: str) -> Any:
    """Import a module of `caraway.dataplane.streams.java` without its package, whose dependencies a build lacks."""
    if "caraway" not in sys.modules:
        package = ModuleType("caraway")
        package.__path__ = [str(ROOT / "src" / "caraway")]
        sys.modules["caraway"] = package
    return importlib.import_module(name)


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
