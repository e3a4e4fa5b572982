"""The Java part: as it was built here, and compiled by each of the two compilers."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import hatch_build
from caraway.dataplane.streams.spark.session import caraway_jar


@dataclass(frozen=True, slots=True)
class CompiledJava:
    """A compiler, and the jar that it produced."""

    compiler: list[str]
    jar: Path


_EACH = pytest.mark.full(reason="another minute for each compiler; the jar that was built here is one of them")


@pytest.fixture(
    scope="session", params=["built", pytest.param("javac", marks=_EACH), pytest.param("eclipse", marks=_EACH)]
)
def compiled_java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CompiledJava:
    """Return the jar of the environment, or `jvm/src` compiled by javac or by the compiler for those without a JDK."""
    if request.param == "built":
        return CompiledJava(compiler=hatch_build.javac() or hatch_build.eclipse_compiler(), jar=caraway_jar())
    if request.param == "eclipse":
        compiler = hatch_build.eclipse_compiler()
    elif not (compiler := hatch_build.javac()):
        pytest.skip("there is no javac here: Eclipse's compiler makes everything")
    target = tmp_path_factory.mktemp(request.param) / "jar"
    hatch_build.compile_java(compiler=compiler, target=target)
    return CompiledJava(compiler=compiler, jar=target / "caraway-jvm.jar")
