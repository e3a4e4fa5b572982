import pytest

import hatch_build


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


def test_without_a_jdk_the_build_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(hatch_build.BuildError, match="sudo apt-get install openjdk-17-jdk-headless"):
        hatch_build._javac()


def test_what_is_up_to_date_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hatch_build.build()
    monkeypatch.setattr(hatch_build, "_replace", pytest.fail)
    hatch_build.build()
