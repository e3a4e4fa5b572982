"""Archives of classes: a JVM uses its own archive, and silently ignores another's."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from caraway.apps.stack.classes.training import plan_of_training
from caraway.dataplane.streams.java.class_archives import ClassArchive
from caraway.dataplane.streams.java.runtime import find_java
from caraway.graph.plan.model import JobMode
from tests.integration.spark.broker import jars

PROGRAM = ("kafka.tools.StorageTool", "random-uuid")
A_CLASS_OF_KAFKA = "kafka.tools.StorageTool "


def run(options: Sequence[str], class_path: Sequence[Path]) -> str:
    command = [str(find_java()), *options, "-cp", os.pathsep.join(map(str, class_path)), *PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_classes_come_out_of_an_archive_of_their_own(tmp_path: Path) -> None:
    broker = jars().broker
    archive = ClassArchive.of(tmp_path, "tool", broker)
    archive.path.parent.mkdir()
    plain = run(archive.options(), broker)
    made = run(archive.options_to_make(), broker)
    archive.unfinished.replace(archive.path)
    # The output contains an id, which differs each time, so only the numbers of lines are compared.
    assert len(plain.splitlines()) == len(made.splitlines()) == len(run(archive.options(), broker).splitlines())
    loaded = run([*archive.options(), "-Xlog:class+load"], broker).splitlines()
    assert [line for line in loaded if A_CLASS_OF_KAFKA in line and "shared objects file" in line]


@pytest.mark.full(reason="an option that is off by default; an archive is made and used in the other test")
@pytest.mark.parametrize("what", ["none", "nothing of the kind", "other jars"])
def test_an_archive_that_is_no_use_is_not_spoken_of(tmp_path: Path, what: str) -> None:
    broker = jars().broker
    archive = ClassArchive.of(tmp_path, "tool", broker)
    archive.path.parent.mkdir()
    if what == "nothing of the kind":
        archive.path.write_bytes(b"no classes" * 1000)
    elif what == "other jars":
        run(archive.options_to_make(), [*broker, tmp_path])
        archive.unfinished.replace(archive.path)
    said = run(archive.options(), broker)
    assert len(said.splitlines()) == len(run((), broker).splitlines())
    assert "archive" not in said


def test_other_jars_have_another_archive(tmp_path: Path) -> None:
    broker = jars().broker
    assert ClassArchive.of(tmp_path, "kafka", broker) != ClassArchive.of(tmp_path, "kafka", broker[1:])


def test_the_training_runs_both_modes() -> None:
    assert {job.mode for job in plan_of_training().jobs} == {JobMode.REAL_TIME, JobMode.MICRO_BATCH}
