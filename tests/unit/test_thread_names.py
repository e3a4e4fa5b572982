"""The names of threads that the system shows."""

import sys
import threading
from pathlib import Path

import pytest

from caraway.process.thread_names import show_name


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_thread_shows_the_first_fifteen_characters_of_its_name() -> None:
    shown: list[str] = []

    def run() -> None:
        show_name()
        shown.append(Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text())

    thread = threading.Thread(target=run, name="a-name-of-many-characters")
    thread.start()
    thread.join()
    assert shown == ["a-name-of-many-\n"]
    assert not Path(f"/proc/{threading.get_native_id()}/comm").read_text().startswith("a-name")
