"""Runs the tests of the Java classes (jvm/test) in a JVM of their own."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from caraway.java.runtime import find_java
from tests.effort import examples
from tests.integration.spark.conftest import CompiledJava

SOURCES = Path(__file__).parents[3] / "jvm" / "test"
SPARK = Path(pyspark.__file__).parent / "jars"


@pytest.mark.parametrize(("program", "seeds"), [("OperatorsTest", examples(150)), ("shuffle.ChannelTest", 50)])
def test_the_program_ends_well(compiled_java: CompiledJava, tmp_path: Path, program: str, seeds: int) -> None:
    """`OperatorsTest` compares operators with plain ones over generated traces; the others say what they check."""
    jars = [str(compiled_java.jar), *map(str, SPARK.glob("*.jar"))]
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    compiled = [*compiled_java.compiler, "-cp", os.pathsep.join(jars), "-d", str(tmp_path), *sources]
    subprocess.run(compiled, check=True)
    class_path = os.pathsep.join([*jars, str(tmp_path)])
    command = [str(find_java()), "-Xmx512m", "-cp", class_path, f"io.caraway.{program}", str(seeds)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == f"ok {seeds}", run.stderr[:4000]
