"""Runs the tests of the Java operators (jvm/test) against plain Java ones, over generated traces."""

import os
import subprocess
from pathlib import Path

from caraway.java.runtime import find_java
from tests.effort import examples
from tests.integration.spark.conftest import CompiledJava

SOURCES = Path(__file__).parents[3] / "jvm" / "test"
SEEDS = examples(150)


def test_operators_agree_with_plain_ones(compiled_java: CompiledJava, tmp_path: Path) -> None:
    jar = str(compiled_java.jar)
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    subprocess.run([*compiled_java.compiler, "-cp", jar, "-d", str(tmp_path), *sources], check=True)
    class_path = os.pathsep.join([jar, str(tmp_path)])
    command = [str(find_java()), "-Xmx512m", "-cp", class_path, "io.caraway.OperatorsTest", str(SEEDS)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == f"ok {SEEDS}", run.stderr[:4000]
