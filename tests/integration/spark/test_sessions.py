"""The Spark session of the tests: a JVM that dies between two modules is replaced, and its death is told."""

import os
import signal
from pathlib import Path

import pytest

from caraway.dataplane.streams.spark.java import jvm_process
from tests.integration.spark.sessions import LastingSession


@pytest.mark.full(reason="kills the JVM of the session and starts another; it concerns the tests alone")
def test_a_jvm_that_died_is_replaced(lasting_session: LastingSession, tmp_path: Path) -> None:
    lasting_session.stop()
    told: list[str] = []
    folders = iter([tmp_path / "first", tmp_path / "second"])
    # The process has one JVM, which `lasting_session` may have started already; this one takes it over.
    session = LastingSession(lambda: next(folders), told.append)
    first = session.get()
    assert session.get() is first
    assert first.range(3).count() == 3
    process = jvm_process(first)
    os.kill(process.pid, signal.SIGSEGV)
    process.wait()
    second = session.get()
    assert second.range(4).count() == 4
    (death,) = told
    assert "ended with code" in death
    session.stop()
