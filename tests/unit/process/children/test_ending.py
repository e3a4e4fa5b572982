"""Requests to end that come several at a time."""

import os
import signal
import subprocess
import sys

PROGRAM = """
import os, signal, threading
from caraway.process.children.ending import on_request_to_end

stopping = threading.Event()

def stop():
    # Another signal comes while the event's lock is held, as it may between any two steps of `set`.
    with stopping._cond:
        os.kill(os.getpid(), signal.SIGTERM)
    stopping.set()
    os.kill(os.getpid(), signal.SIGINT)

on_request_to_end(stop)
os.kill(os.getpid(), {number})
assert stopping.wait(30)
print("ended")
"""


def test_a_second_request_doesn_t_interrupt_the_first() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        program = PROGRAM.format(number=int(number))
        done = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, timeout=60, env=os.environ
        )
        assert done.stdout == b"ended\n", done.stderr
