"""The platform's side of a process of users' functions."""

import atexit
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from caraway.errors import UnavailableError
from caraway.process.confinement.channel import LARGE, Channel
from caraway.process.confinement.connections import Gate, Refusal
from caraway.process.confinement.fork_server import STATUS
from caraway.process.confinement.policy import Confinement, Report
from caraway.process.confinement.values import unpacked

# The start of a process counts as failed after this many seconds. A start takes some milliseconds. But the first one
# waits until the fork server has loaded its modules, which takes long on a busy machine.
START_S = 120.0
# When a process is ended, its channel is closed, and it gets `ENDING_S` seconds to end by itself. Then it is killed,
# and the platform waits at most `JOIN_S` seconds until it is gone.
ENDING_S = 0.2
JOIN_S = 5.0
# The environment variables that the fork server inherits. None of these contains a secret. Python and numerical
# libraries find their files and settings by them.
KEPT_VARIABLES = (
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "MALLOC_ARENA_MAX",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PATH",
    "PYTHONHASHSEED",
    "TZ",
)
_STARTER = Path(__file__).with_name("start.py")


class UnconfinedError(UnavailableError):
    """The isolation of users' functions is required, and this system lacks a part of it."""

    code = "isolation_unavailable"


class _Server:
    """The fork server for one module, which this process shares with all processes that are forked from it.

    A `caraway.process.children.runner.Runner` would restart it at once when it ends; here it is started again only when
    a process is requested from it.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        with self._lock:
            if self._control is None:
                self._start()

    def fork(self, channel: socket.socket, exit_socket: socket.socket) -> None:
        """Request a new process, with its ends of the channel and of the exit socket.

        Raises `OSError` if the fork server can't be reached, even after it was started again.
        """
        with self._lock:
            for attempt in range(2):
                control = self._control or self._start()
                try:
                    socket.send_fds(control, [b"."], [channel.fileno(), exit_socket.fileno()])
                except OSError:
                    # The fork server was killed, so the second attempt starts a new one.
                    control.close()
                    self._control = None
                    if attempt:
                        raise
                else:
                    return

    def descriptors(self) -> tuple[int, int]:
        """Start the fork server, if it doesn't run, and return what a program needs to request forks from it.

        These are the descriptors of the socket for requests, and of the pipe that keeps the fork server running.
        """
        with self._lock:
            control = self._control or self._start()
            held = None if self._process is None else self._process.stdin
            return control.fileno(), control.fileno() if held is None else held.fileno()

    def adopt(self, control: int) -> None:
        """Request forks on this descriptor, whose fork server another process has started."""
        with self._lock:
            self._control = socket.socket(fileno=control)

    def end(self) -> None:
        """End the fork server and its processes, if this process started it."""
        process, control, self._process, self._control = self._process, self._control, None, None
        if control is not None:
            control.close()
        if process is not None and process.stdin is not None and self._owner == os.getpid():
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(JOIN_S)

    def renew(self) -> None:
        """Replace the lock: in a process that was forked while a thread held it, nothing would release it."""
        self._lock = threading.Lock()

    def _start(self) -> socket.socket:
        if self._process is not None and self._process.stdin is not None:
            # The former fork server was killed, so the pipe to it isn't needed any more.
            self._process.stdin.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        arguments = [str(theirs.fileno()), json.dumps(_search_path(self._module)), self._module]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-P", str(_STARTER), *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                cwd="/",
            )
        self._control, self._owner = ours, os.getpid()
        return ours


def _search_path(module: str) -> list[str]:
    """Return the search path of the fork server of a module: that of this process, without the folder of its start.

    `python -m` puts the working directory first on the path, and functions may read all folders of their path. So that
    one, which may be somebody's home, is left out, unless it has the module.
    """
    first, *others = sys.path
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    has_module = Path(first, *module.split(".")).with_suffix(".py").exists()
    keeps = sys.flags.safe_path or first in named or has_module
    return [path for path in ([first] if keeps else []) + others if path]


_servers: dict[str, _Server] = {}


def _renew_all() -> None:
    for server in _servers.values():
        server.renew()


os.register_at_fork(after_in_child=_renew_all)


@atexit.register
def _end_all() -> None:
    for server in _servers.values():
        server.end()


def _server_of(target: str) -> _Server:
    module = target.partition(":")[0]
    return _servers.get(module) or _servers.setdefault(module, _Server(module))


def start_fork_server(target: str) -> None:
    """Start the fork server of a target, if it doesn't run, so that the first process starts sooner."""
    _server_of(target).start()


def shared_fork_server(target: str) -> tuple[int, int]:
    """Start the fork server of a target, if it doesn't run, and return the descriptors for another program.

    The program inherits both, and gives them to `adopt_fork_server`. It then starts processes within milliseconds,
    while a fork server of its own would have to load its modules first.
    """
    return _server_of(target).descriptors()


def adopt_fork_server(target: str, descriptors: tuple[int, int]) -> None:
    """Use a fork server that another process has started; it runs as long as the second descriptor is open.

    If it has ended all the same, the next request starts one.
    """
    _server_of(target).adopt(descriptors[0])


class ConfinedProcess:
    """A process with the rights of its policy.

    Attributes:
        channel: The channel to the process.
        report: The confinement in force in it.
    """

    def __init__(self, target: str, policy: Confinement, memory_mb: int | None, refusal: Refusal | None = None) -> None:
        """Start a process and wait until it has given up its rights.

        Args:
            target: The "module:function" that the process calls with its end of the channel.
            policy: The rights of the process.
            memory_mb: The memory that it may use beyond that at its start, in MiB; None means no limit.
            refusal: Returns why an address may not be reached. The platform then opens all connections of the process;
                None: it opens its own, if its policy has the network.

        Raises:
            UnconfinedError: Its confinement is required, and this system lacks a part of it.
            OSError: The process can't be started.
        """
        ours, theirs = socket.socketpair()
        # With a large send buffer, a long message takes fewer switches between the two processes. The system grants
        # some hundred kB.
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE)
        self._exit, their_exit = socket.socketpair()
        self._gate: Gate | None = None
        self.channel = Channel(ours)
        with theirs, their_exit:
            _server_of(target).fork(theirs, their_exit)
        deadline = time.monotonic() + START_S
        environment = {name: os.environ[name] for name in policy.environment if name in os.environ}
        try:
            order = target, policy, environment, memory_mb, refusal is not None
            self.channel.send(pickle.dumps(order), deadline)
            if refusal is not None and (listening := self.channel.receive_descriptor(deadline)) is not None:
                self._gate = Gate(listening, refusal)
            in_force, missing = unpacked(self.channel.receive(deadline))
        except (EOFError, TypeError, ValueError) as error:
            raise OSError(0, f"it ended while it started ({self.end()})") from error
        except BaseException:
            self.end()
            raise
        self.report = Report(in_force=tuple(in_force), missing=tuple(missing))
        if missing and policy.mode == "required":
            self.end()
            who = "users' functions" if refusal is None else "connectors"
            raise UnconfinedError(
                f"{who} don't run, since they can't be isolated here: {'; '.join(missing)}. Mend that, or "
                "set functions.isolation=available (CARAWAY_FUNCTIONS__ISOLATION) to run them all the same"
            )

    def kill(self) -> None:
        """Have the process killed, by another thread than the one that uses it, and calls `end` afterwards."""
        with suppress(OSError):
            self._exit.shutdown(socket.SHUT_WR)
        self.channel.shut()

    def end(self) -> str:
        """End the process, and return how it ended."""
        self.channel.close()
        code = self._ended_within(ENDING_S)
        if code is None:
            # The fork server sees that this end of the exit socket is closed, and kills the process.
            with suppress(OSError):
                self._exit.shutdown(socket.SHUT_WR)
            code = self._ended_within(JOIN_S)
        self._exit.close()
        if self._gate is not None:
            self._gate.end()
        if code is None or code >= 0:
            return f"exit code {code}"
        return signal.Signals(-code).name

    def _ended_within(self, seconds: float) -> int | None:
        with suppress(OSError):
            self._exit.settimeout(seconds)
            content = self._exit.recv(STATUS.size)
            if len(content) == STATUS.size:
                code: int = STATUS.unpack(content)[0]
                return code
        return None
