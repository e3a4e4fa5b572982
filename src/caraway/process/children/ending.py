"""The signals that ask a process to end."""

import signal
from collections.abc import Callable

# The exit code of a process that leaves its work undone without having failed: another process does the work, or the
# work is tried again later.
LATER = 75


def on_request_to_end(stop: Callable[[], object]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT, and ignore further ones.

    A process may get several of them at nearly the same time: from its supervisor, from a terminal, and from the kernel
    when its parent dies. Python calls a handler while another one runs, and a second call of `threading.Event.set`
    inside the first would wait for its lock forever.
    """

    def handle(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
