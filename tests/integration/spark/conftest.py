"""The Java part as each of the two compilers makes it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import hatch_build


@dataclass(frozen=True, slots=True)
class CompiledJava:
    """A compiler, and the jar that it made."""

    compiler: list[str]
    jar: Path


_ECLIPSE = pytest.mark.full(reason="another minute; `just bare-machine` and a clone without a JDK build with it, too")


@pytest.fixture(scope="session", params=["javac", pytest.param("eclipse", marks=_ECLIPSE)])
def compiled_java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CompiledJava:
    """`jvm/src` compiled by javac, and by the compiler that serves where there is no JDK."""
    if request.param == "eclipse":
        compiler = hatch_build.eclipse_compiler()
    elif not (compiler := hatch_build.javac()):
        pytest.skip("there is no javac here: Eclipse's compiler makes everything")
    target = tmp_path_factory.mktemp(request.param) / "jar"
    hatch_build.compile_java(compiler=compiler, target=target)
    return CompiledJava(compiler=compiler, jar=target / "caraway-jvm.jar")
