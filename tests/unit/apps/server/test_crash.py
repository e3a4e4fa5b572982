"""A test that a process of the server that crashes logs the stacks of its threads."""

import signal
import subprocess
import sys

PROGRAM = """
import os, signal
from caraway.process.logs import configure_logging

def answer():
    os.kill(os.getpid(), signal.SIGSEGV)

configure_logging("info")
answer()
"""


def test_a_crash_tells_where_it_was() -> None:
    crashed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert crashed.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in crashed.stderr
    assert "in answer" in crashed.stderr
