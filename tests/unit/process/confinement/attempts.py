"""The attempts of a hostile function, each in a process of its own; an attempt returns "done", or its error."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from caraway.process.confinement.channel import Channel
from caraway.process.confinement.values import packed, unpacked

PTRACE_ATTACH = 16
IPPROTO_MPTCP, NETLINK_SOCK_DIAG = 262, 4
PR_SET_PDEATHSIG, PR_CAPBSET_READ = 1, 23
CAPABILITY_VERSION = 0x20080522
# From linux/mman.h.
MAP_GROWSDOWN, MREMAP_MAYMOVE = 0x100, 1
# fcntl's operation and ioctl's that name the process which gets signals of a descriptor.
F_SETSIG, FIOSETOWN = 10, 0x8901


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


def _block(text: str) -> int:
    """Have threads wait for connections that never come, for hours."""
    port, threads = map(int, text.split())

    def wait() -> None:
        with socket.socket() as one:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 127)
            one.connect(("127.0.0.1", port))

    for _ in range(threads):
        threading.Thread(target=wait, daemon=True).start()
    return threads


def connected(text: str) -> list[object]:
    """Connect; return the error, whether the socket blocks, its error after that, and that of a second `connect`."""
    port, way = text.split(maxsplit=1)
    with socket.socket() as one:
        if way == "polls":
            one.setblocking(False)
        if way == "own timeout":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, 50_000))
        if way == "stubborn":
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 127)
        first = one.connect_ex(("127.0.0.1", int(port)))
        poller = select.poll()
        poller.register(one, select.POLLOUT)
        poller.poll(1_000 if way == "polls" else 0)
        blocks, error = os.get_blocking(one.fileno()), one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return [first, blocks, error, one.connect_ex(("127.0.0.1", int(port)))]


def _serve(way: str) -> str:
    """Become a server, of TCP at a port that the system chooses, or of one that no limit of TCP's ports knows."""
    protocol = IPPROTO_MPTCP if way == "MPTCP" else 0
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as server:
        if way != "TCP without bind":
            server.bind(("127.0.0.1", 0))
        server.listen(1)
        return "done"


def _resolve_by_datagrams(port: str) -> str:
    """Ask somebody by UDP from a port that was chosen before, as libraries do that look up names."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(60)
        one.sendto(b"who is it?", ("127.0.0.1", int(port)))
        return one.recv(100).decode()


def _limit_files(pid: str) -> str:
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (3, 3))
    return "done"


def _slow_down(pid: str) -> str:
    os.sched_setscheduler(int(pid), os.SCHED_IDLE, os.sched_param(0))
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


def _end_later_than_its_parent() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# Each changes a file or descriptor that the function itself has made and owns, so only the filter of calls refuses it.
CHANGES: dict[str, Callable[[int], object]] = {
    "chmod": lambda _: os.chmod("file", 0o700),  # noqa: PTH101 (the call itself)
    "chown": lambda _: os.chown("file", os.getuid(), os.getgid()),
    "end later": lambda _: _end_later_than_its_parent(),
    "fallocate": lambda file: os.posix_fallocate(file, 0, 1),
    "fchmod": lambda file: os.fchmod(file, 0o700),
    "fchown": lambda file: os.fchown(file, os.getuid(), os.getgid()),
    "ftruncate": lambda file: os.ftruncate(file, 0),
    "futimens": lambda file: os.utime(file),
    "lchown": lambda _: os.lchown("file", os.getuid(), os.getgid()),
    "memory file": lambda _: os.memfd_create("large"),
    "mkfifo": lambda _: os.mkfifo("pipe"),
    "open for nothing": lambda _: os.open("file", os.O_WRONLY | os.O_RDWR),
    "open to read and truncate": lambda _: os.open("file", os.O_RDONLY | os.O_TRUNC),
    "removexattr": lambda _: os.removexattr("file", "user.a"),
    "set owner": lambda file: fcntl.fcntl(file, fcntl.F_SETOWN, os.getpid()),
    "set owner by ioctl": lambda file: fcntl.ioctl(file, FIOSETOWN, os.getpid().to_bytes(4, "little")),
    "set signal": lambda file: fcntl.fcntl(file, F_SETSIG, signal.SIGTERM),
    "setxattr": lambda _: os.setxattr("file", "user.a", b"b"),
    "shared memory": lambda _: mmap.mmap(-1, 1 << 20),
    "shared memory of a device": lambda _: os.open("/dev/zero", os.O_RDWR),
    "socket to any": lambda _: socket.socketpair(type=socket.SOCK_DGRAM),
    "truncate": lambda _: os.truncate("file", 0),
    "utime": lambda _: os.utime("file"),
}


def _change(name: str) -> str:
    with Path("file").open("w") as file:
        try:
            CHANGES[name](file.fileno())
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return "done"


def _file_of_its_own(_: str) -> str:
    """Use a file as libraries do."""
    Path("folder").mkdir()
    with Path("folder/a").open("w+b") as file:
        file.write(b"abcdef")
        file.seek(2)
        file.flush()
        with mmap.mmap(file.fileno(), 6) as shared:
            shared[0:1] = b"x"
    Path("folder/a").rename("folder/b")
    Path("folder/a").symlink_to("b")
    shutil.copyfile("folder/a", "folder/c")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    content = Path("folder/c").read_text(encoding="utf-8")
    shutil.rmtree("folder")
    return content


def _capabilities(_: str) -> list[list[int]]:
    """Return the effective, permitted, inheritable and bounding capabilities."""
    libc = ctypes.CDLL(None)
    sets = (ctypes.c_uint32 * 6)()
    libc.capget((ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), sets)
    held = [sets[position] | sets[position + 3] << 32 for position in range(3)]
    bounding = [number for number in range(41) if libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1]
    return [*([number for number in range(64) if one >> number & 1] for one in held), bounding]


def _hoard(way: str) -> int:
    """Take memory that isn't data for Linux, until it is refused or there are 8 GiB; return the MiB taken."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    step, failed = 64 << 20, ctypes.c_void_p(-1).value
    stack = (ctypes.c_void_p.in_dll(libc, "__libc_stack_end").value or 0) & -4096
    while libc.mincore(ctypes.c_void_p(stack - 4096), ctypes.c_size_t(4096), ctypes.create_string_buffer(1)) == 0:
        stack -= 4096
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_GROWSDOWN if way == "like a stack" else 0)
    for taken in range(0, 8 << 30, step):
        if way == "a page of the stack":
            stack = libc.mremap(
                ctypes.c_void_p(stack), ctypes.c_size_t(taken or 4096), ctypes.c_size_t(taken + step), MREMAP_MAYMOVE
            )
            refused = stack == failed
        else:
            block = libc.mmap(None, ctypes.c_size_t(step), mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
            refused = block == failed
        if way == "written, then only read" and not refused:
            libc.mprotect(ctypes.c_void_p(block), ctypes.c_size_t(step), mmap.PROT_READ)
        if refused:
            return taken >> 20
    return 8 << 10


def _output(_: str) -> list[bool]:
    """Print, and return whether each of the two outputs is a pipe, of which nothing can be overwritten."""
    sys.stdout.write("to be kept\n")
    sys.stdout.flush()
    sys.stderr.write("and this\n")
    sys.stderr.flush()
    return [stat.S_ISFIFO(os.fstat(number).st_mode) for number in (1, 2)]


def _overwrite(number: str) -> str:
    os.lseek(int(number), 0, os.SEEK_SET)
    os.write(int(number), b"forged")
    return "done"


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "block": _block,
    "bomb": _bomb,
    "capabilities": _capabilities,
    "change": _change,
    "connect": _connect,
    "connected": connected,
    "datagrams": _resolve_by_datagrams,
    "descriptors": lambda _: sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()),
    "file": _file_of_its_own,
    "environment": lambda _: sorted(f"{name}={value}" for name, value in os.environ.items()),
    "hoard": _hoard,
    "import": lambda name: type(__import__(name)).__name__,
    "kill": _kill,
    "limit files": _limit_files,
    "output": _output,
    "overwrite": _overwrite,
    "pid": lambda _: os.getpid(),
    "program": lambda _: subprocess.run([sys.executable, "-c", ""], check=True),
    "read": _read,
    "resolve": lambda name: socket.getaddrinfo(name, 80),
    "ports": lambda _: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG).close(),
    "scratch": lambda _: _write("file") and _read("file"),
    "serve": _serve,
    "slow down": _slow_down,
    "threads": _threads,
    "trace": _trace,
    "unix": lambda path: socket.socket(socket.AF_UNIX).connect(path),
    "user": lambda _: [os.getresuid(), os.getresgid(), os.getgroups()],
    "write": _write,
}
