"""The Java part, compiled by each of the two compilers."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import hatch_build


@dataclass(frozen=True, slots=True)
class CompiledJava:
    """A compiler, and the jar that it produced."""

    compiler: list[str]
    jar: Path


_ECLIPSE = pytest.mark.full(reason="another minute; `just bare-machine` and a clone without a JDK build with it, too")


@pytest.fixture(scope="session", params=["javac", pytest.param("eclipse", marks=_ECLIPSE)])
def compiled_java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CompiledJava:
    """Return `jvm/src` compiled by javac, or by the compiler that is used without a JDK."""
    if request.param == "eclipse":
        compiler = hatch_build.eclipse_compiler()
    elif not (compiler := hatch_build.javac()):
        pytest.skip("there is no javac here: Eclipse's compiler makes everything")
    target = tmp_path_factory.mktemp(request.param) / "jar"
    hatch_build.compile_java(compiler=compiler, target=target)
    return CompiledJava(compiler=compiler, jar=target / "caraway-jvm.jar")
