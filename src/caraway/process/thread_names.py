"""The names of threads that the tools of the system show, which Python before 3.14 doesn't set."""

import contextlib
import threading
from pathlib import Path

# The most bytes of a thread's name on Linux; the kernel cuts longer ones.
MAX_NAME = 15


def show_name() -> None:
    """Set the name of the current thread that `top -H`, `ps -L` and `/proc` show to its Python name, on Linux.

    On other systems, and where /proc may not be written, the thread keeps the name of its process.
    """
    thread = threading.current_thread()
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(thread.name[:MAX_NAME])
