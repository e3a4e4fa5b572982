"""A private Redis server for tests: on a free port, with a folder of its own and a log of all changes.

`python -m tests.services.redis` makes the server's program ready, as `./run setup` does: if the machine has none, it
unpacks Debian's packages into the cache. That needs no rights and changes nothing else on the machine.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from caraway.apps.stack import ports
from tests.services.debian import NotInstalledError, cache, libraries, unpack
from tests.services.killable import ServerProcess

# The program itself is in the second package, and a link to it in the first one.
PACKAGES = ("redis-server", "redis-tools")
# A killed server loses nothing that it has confirmed, as the system keeps what a process has written into its log.
OPTIONS = (
    *("--bind", "127.0.0.1"),
    *("--save", ""),
    *("--appendonly", "yes"),
    *("--appendfsync", "no"),
    *("--daemonize", "no"),
)


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a Redis; `root` is where its packages were unpacked, None if the system has them."""

    server: Path
    root: Path | None

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which it runs."""
        return dict(os.environ) if self.root is None else {**os.environ, "LD_LIBRARY_PATH": libraries(self.root)}


def program() -> Program:
    """Return the program of the system, or else that in the cache.

    Raises:
        NotInstalledError: There is none.
    """
    if server := shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/local/bin"):
        return Program(Path(server), None)
    unpacked = _unpacked() / "usr/bin/redis-server"
    if unpacked.is_file():
        return Program(unpacked, _unpacked())
    raise NotInstalledError("tests need Redis: run ./run setup, or install redis-server (Debian), redis (macOS)")


def make_ready() -> None:
    """Fetch the program if the machine has none.

    Raises:
        NotInstalledError: It can't be fetched on this machine.
    """
    try:
        program()
    except NotInstalledError:
        if not shutil.which("apt-get"):
            raise
        unpack("Redis", PACKAGES, _unpacked())


def _unpacked() -> Path:
    return cache() / "redis"


class RedisServer(ServerProcess):
    """An empty server. Clients that connect without a password may do everything."""

    start_s = 30.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "redis.log", working_folder=folder)
        self.folder = folder
        self.port = ports.choose()
        # The bytes of the log before the last start.
        self._logged = 0

    def start(self, *options: str) -> None:
        """Start the server on its data, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._logged = self.log_file.stat().st_size if self.log_file.exists() else 0
        port = () if "--port" in options else ("--port", str(self.port))
        super().start(*port, *options)

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts the server, and its environment."""
        found = program()
        return [str(found.server), *OPTIONS, "--dir", str(self.folder)], found.environment

    def client(self, **more: Any) -> Any:
        """Return a client with the library's own settings."""
        return redis.Redis(host="127.0.0.1", port=self.port, **more)

    def _answers(self) -> bool:
        """Return whether the server has loaded its data; one that asks for TLS or a password only has to listen."""
        return b"Ready to accept connections" in self.log_file.read_bytes()[self._logged :]


@contextmanager
def running_redis(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Run a server until the block ends."""
    server = RedisServer(folder)
    try:
        server.start(*options)
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    try:
        make_ready()
    except NotInstalledError as error:
        # Everything but the tests of Redis works without it, and those fail with the same message.
        sys.stderr.write(f"{error}\n")
