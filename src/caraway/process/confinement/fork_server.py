"""The process that forks the processes of users' functions.

The fork server is started by `exec` with an environment without secrets, so that neither it nor a process that it forks
has anything of the platform's memory. It loads all modules before it forks, and runs no user's code. For each forked
process it has an exit socket, whose other end the platform holds. When the platform closes that end, the fork server
kills the process; when the process has ended, the fork server writes its exit status to the socket.

The output of a process comes through a pipe, and the fork server writes it to its own errors, which are the platform's
log: with a descriptor of that file, a function could overwrite what stands there.
"""

import gc
import importlib
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from caraway.process.confinement.channel import Channel
from caraway.process.confinement.confine import confine
from caraway.process.confinement.connections import listener
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.values import packed
from caraway.process.scratch import ScratchFolder, sweep

# Each request carries two descriptors: the channel of the new process, and its exit socket.
PARTS = 2
STATUS = struct.Struct("!i")
# The most bytes of a process's output that are read and written at once; a Linux pipe holds that many.
OUTPUT_BYTES = 65_536
# The order that the platform sends to a new process: the "module:function" to run, the policy, the environment, the
# memory in MiB, and whether the platform opens the connections of the process.
Order = tuple[str, Confinement, dict[str, str], int | None, bool]


class _ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, tuple[socket.socket, ScratchFolder]] = {}
        self._parent = os.getpid()

    def run(self) -> None:
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        # Python writes to the wake-up descriptor only for signals that have a handler, so SIGCHLD gets one that does
        # nothing. When a process ends, the write makes `select` return, and the process is reaped.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        self._selector.register(woken, selectors.EVENT_READ, "woken")
        self._selector.register(self._control, selectors.EVENT_READ, "control")
        # Standard input is a pipe, whose other end all processes that may request forks hold open. So when the pipe
        # ends, none of these processes is left, and the fork server ends, too.
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "end")
        while True:
            for key, _ in self._selector.select():
                match key.data:
                    case "woken":
                        with suppress(BlockingIOError):
                            os.read(woken, 4096)
                        self._reap()
                    case "control":
                        self._fork()
                    case "output":
                        self._pass_on(key.fd)
                    case "end":
                        self._end()
                        return
                    case int(pid) if pid in self._processes:
                        self._selector.unregister(self._processes[pid][0])
                        os.kill(pid, signal.SIGKILL)

    def _fork(self) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, PARTS)
        if len(descriptors) != PARTS:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        channel, exit_socket = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        pipe: tuple[int, ...] = ()
        try:
            pipe = printed, printing = os.pipe()
            scratch = ScratchFolder("function")
            pid = os.fork()
        except OSError as error:
            for descriptor in pipe:
                os.close(descriptor)
            # The platform waits for the first message of the new process. By the closed channel it sees that there is
            # no process.
            sys.stderr.write(f"no process for users' functions can be started: {error}\n")
            channel.close()
            exit_socket.close()
            return
        if pid == 0:
            _work(channel.detach(), scratch.path, self._parent, printing)
        channel.close()
        os.close(printing)
        os.set_blocking(printed, False)
        self._selector.register(printed, selectors.EVENT_READ, "output")
        self._processes[pid] = exit_socket, scratch
        self._selector.register(exit_socket, selectors.EVENT_READ, pid)

    def _pass_on(self, printed: int) -> None:
        """Write what a process has printed; a pipe that no process has open any more is closed."""
        with suppress(BlockingIOError):
            output = os.read(printed, OUTPUT_BYTES)
            if not output:
                self._selector.unregister(printed)
                os.close(printed)
            while output:
                output = output[os.write(2, output) :]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._processes:
                exit_socket, scratch = self._processes.pop(pid)
                with suppress(KeyError):
                    self._selector.unregister(exit_socket)
                with suppress(OSError), exit_socket:
                    exit_socket.send(STATUS.pack(os.waitstatus_to_exitcode(status)))
                self._remove(scratch)

    def _remove(self, scratch: ScratchFolder) -> None:
        """Remove a folder, in another process if it isn't empty, since a function may have written very many files."""
        with suppress(OSError):
            scratch.path.rmdir()
            scratch.release()
            return
        # The process that is forked below inherits the lock of the folder and holds it until it has removed the folder.
        # So this process may release the lock at once.
        if os.fork() == 0:
            with suppress(BaseException):
                scratch.remove()
            os._exit(0)
        scratch.release()

    def _end(self) -> None:
        for pid, (_, scratch) in self._processes.items():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            with suppress(Exception):
                scratch.remove()
        for key in [key for key in self._selector.get_map().values() if key.data == "output"]:
            self._pass_on(key.fd)


def serve(descriptor: int, module: str) -> None:
    """Fork processes that run functions of `module`, until no process that may request them is left.

    Requests come on the socket of `descriptor`.
    """
    # Ctrl-C in a terminal sends SIGINT to this process, too. The signal is ignored here, because the process that
    # requests the forks handles it, and this process ends with that one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # `warm_up` runs code that is slow at its first call. The call comes before the first fork, so that no forked
    # process has to wait for it.
    getattr(importlib.import_module(module), "warm_up", lambda: None)()
    # Python's garbage collector doesn't visit frozen objects. Otherwise the collections of a fork would write to the
    # memory pages that it shares with the other forks, and the kernel would copy these pages.
    gc.collect()
    gc.freeze()
    # A fork server that was killed couldn't remove the scratch folders of its processes, so the next one does.
    sweep()
    _ForkServer(socket.socket(fileno=descriptor)).run()


def _hand_over_connections(channel: Channel) -> tuple[str, ...]:
    """Have the platform open all connections of this process; return why that isn't possible here, if so."""
    try:
        listening = listener()
    except OSError as error:
        channel.send_descriptor(None)
        return (f"addresses of connections aren't checked by the kernel ({error.strerror})",)
    channel.send_descriptor(listening)
    # The platform has the descriptor now. If this process kept one too, it could answer the kernel's questions itself,
    # and allow any address.
    os.close(listening)
    return ()


def _work(descriptor: int, scratch: Path, parent: int, printing: int) -> None:
    """Run the order that comes on the channel of the new process; never return."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(printing, 1)
        os.dup2(printing, 2)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        channel = Channel(socket.socket(fileno=descriptor))
        order: Order = pickle.loads(channel.receive())  # noqa: S301 (the platform sends it, before any user's code ran)
        target, policy, environment, memory_mb, asks = order
        os.environ.update(environment)
        missing = _hand_over_connections(channel) if asks else ()
        report = confine(policy, scratch, memory_mb, parent)
        report = replace(report, missing=(*report.missing, *missing))
        channel.send(packed([report.in_force, report.missing]))
        if report.missing and policy.mode == "required":
            os._exit(1)
        module, _, function = target.partition(":")
        getattr(importlib.import_module(module), function)(channel)
        code = 0
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # The platform has closed the channel because it no longer needs this process, so this is no error.
        code = 0
    except BaseException:  # noqa: BLE001 (the process ends, whatever it is)
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
