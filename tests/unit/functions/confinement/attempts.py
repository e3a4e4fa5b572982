"""The attempts of a hostile function, each in a process of its own; an attempt returns "done", or its error."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from caraway.functions.confinement.channel import Channel
from caraway.functions.confinement.values import packed, unpacked

PTRACE_ATTACH = 16


def serve(channel: Channel) -> None:
    """Run the requested attempts, one after the other."""
    while True:
        name, argument = unpacked(channel.receive())
        try:
            answer = str(ATTEMPTS[name](argument))
        except BaseException as error:  # noqa: BLE001 (it is the answer)
            answer = f"{type(error).__name__}: {error}"
        channel.send(packed(answer))


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _write(path: str) -> str:
    Path(path).write_text("mine", encoding="utf-8")
    return "done"


def _connect(port: str) -> str:
    with socket.create_connection(("127.0.0.1", int(port)), 5):
        return "done"


def _kill(pid: str) -> str:
    os.kill(int(pid), signal.SIGKILL)
    return "done"


def _trace(pid: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, int(pid), None, None) == 0:
        return "done"
    raise OSError(ctypes.get_errno(), "ptrace")


def _bomb(_: str) -> str:
    if os.fork() == 0:
        os._exit(0)
    return "done"


def _threads(_: str) -> str:
    stopping = threading.Event()
    threading.stack_size(65536)
    started = 0
    try:
        for _number in range(5000):
            threading.Thread(target=stopping.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        return f"stopped after {started}"
    finally:
        stopping.set()
    return "done"


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "bomb": _bomb,
    "connect": _connect,
    "descriptors": lambda _: sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()),
    "environment": lambda _: sorted(f"{name}={value}" for name, value in os.environ.items()),
    "import": lambda name: type(__import__(name)).__name__,
    "kill": _kill,
    "program": lambda _: subprocess.run([sys.executable, "-c", ""], check=True),
    "read": _read,
    "resolve": lambda name: socket.getaddrinfo(name, 80),
    "scratch": lambda _: _write("file") and _read("file"),
    "threads": _threads,
    "trace": _trace,
    "unix": lambda path: socket.socket(socket.AF_UNIX).connect(path),
    "user": lambda _: [os.getresuid(), os.getresgid(), os.getgroups()],
    "write": _write,
}
