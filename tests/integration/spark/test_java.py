"""Runs the tests of the Java classes (jvm/test) in a JVM of their own."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from caraway.dataplane.streams.java.runtime import find_java
from tests.effort import PROFILE, examples
from tests.integration.spark.conftest import CompiledJava

SOURCES = Path(__file__).parents[3] / "jvm" / "test"
SPARK = Path(pyspark.__file__).parent / "jars"


# A seed takes a second; `just full` has many.
SEEDS = examples(150) if PROFILE in {"full", "soak"} else 10


@pytest.fixture(scope="module")
def class_path(compiled_java: CompiledJava, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the class path of the compiled tests."""
    folder = tmp_path_factory.mktemp("tests-of-java")
    jars = [str(compiled_java.jar), *map(str, SPARK.glob("*.jar"))]
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    subprocess.run([*compiled_java.compiler, "-cp", os.pathsep.join(jars), "-d", str(folder), *sources], check=True)
    return os.pathsep.join([*jars, str(folder)])


@pytest.mark.parametrize(
    ("program", "seeds"), [("OperatorsTest", SEEDS), ("RestartsTest", 10 * SEEDS), ("shuffle.ChannelTest", 50)]
)
def test_the_program_ends_well(class_path: str, program: str, seeds: int) -> None:
    """`OperatorsTest` compares operators with plain ones over generated traces; the others say what they check."""
    command = [str(find_java()), "-Xmx512m", "-cp", class_path, f"io.caraway.{program}", str(seeds)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == f"ok {seeds}", run.stderr[:4000]
