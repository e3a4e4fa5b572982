"""Tests that the file system of checkpoints sets modes and starts no process for that."""

import os
import shutil
import subprocess
from pathlib import Path

import pyspark

from caraway.dataplane.streams.java.runtime import find_java
from tests.integration.spark.conftest import CompiledJava

PROGRAM = Path(__file__).with_name("LocalFilesLaws.java")
JARS = Path(pyspark.__file__).parent / "jars"


def _run(java: CompiledJava, file_system: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program without any other program on its path, so that starting one fails."""
    folder.mkdir()
    (folder / "stale").write_text("kept")
    (folder / ".stale.crc").write_bytes(b"crc\x00\x00\x00\x02\x00\x00\x00\x00\x01")
    jars, classes = os.pathsep.join(map(str, JARS.glob("*.jar"))), folder.with_name("classes")
    subprocess.run([*java.compiler, "-cp", jars, "-d", str(classes), str(PROGRAM)], check=True)
    class_path = os.pathsep.join([str(java.jar), str(classes), jars])
    command = [str(find_java()), "-cp", class_path, PROGRAM.stem, file_system, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(folder / "nothing")})


def test_no_process_is_started_and_modes_are_set(compiled_java: CompiledJava, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    run = _run(compiled_java, "io.caraway.files.LocalFiles", folder)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "kept"
    modes = [path.stat().st_mode & 0o777 for path in (folder / f"mode-{mode}" for mode in range(0o1000))]
    assert modes == list(range(0o1000))
    assert (folder / "mode-256").read_text() == "content of 256"
    assert (folder / "made").stat().st_mode & 0o777 == 0o750
    assert (folder / "old").read_text() == (folder / "made" / "copy").read_text() == "new"
    shutil.rmtree(folder / "made")
    others = {path.name for path in folder.iterdir() if not path.name.startswith("mode-")}
    assert others == {"old", "stale", ".stale.crc"}


def test_hadoop_s_own_starts_processes(compiled_java: CompiledJava, tmp_path: Path) -> None:
    """Check that Hadoop's own file system starts processes; if this fails, Caraway's can be removed."""
    run = _run(compiled_java, "org.apache.hadoop.fs.LocalFileSystem", tmp_path / "files")
    assert run.returncode != 0
    assert 'Cannot run program "chmod"' in run.stderr
