"""Tests of the collector: objects that stay are left out of collections, and freed once they are dropped."""

import subprocess
import sys

import pytest

from tests.timeouts import scaled

# Collections look at all objects of a process, of which one with all tests has millions. So each test is a program.
BEGIN = """
import gc
import weakref
from caraway.process import collector
from caraway.process.collector import keep_what_is_here

class Node:
    # An object in a reference cycle, which only the collector frees.
    def __init__(self):
        self.itself = self
"""
IS_NO_LONGER_LOOKED_AT = """
kept = Node()
assert any(found is kept for found in gc.get_objects())
keep_what_is_here()
assert not any(found is kept for found in gc.get_objects())
assert gc.get_freeze_count() > 0
"""
IS_FREED_ONCE_THERE_IS_TWICE_AS_MUCH = """
node = Node()
keep_what_is_here()
seen = weakref.ref(node)
del node
gc.collect()
keep_what_is_here()
# A full collection now would stop all requests for little gain.
assert seen() is not None
# Some more than that, because other frozen objects may be gone by now.
more = [[number] for number in range(int(gc.get_freeze_count() * collector.GROWTH))]
keep_what_is_here()
keep_what_is_here()
assert seen() is None
assert more
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(IS_NO_LONGER_LOOKED_AT, id="is no longer looked at"),
        pytest.param(IS_FREED_ONCE_THERE_IS_TWICE_AS_MUCH, id="is freed once there is twice as much"),
    ],
)
def test_what_was_kept(program: str) -> None:
    run = [sys.executable, "-c", BEGIN + program]
    done = subprocess.run(run, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 0, done.stderr
