"""A private MariaDB server for tests: on a free port, with a data folder of its own, and a binary log of full rows.

`python -m tests.services.mariadb` makes the server's programs ready, as `./run setup` does: if the machine has none,
it unpacks Debian's packages into the cache. That needs no rights and changes nothing else on the machine.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from caraway.apps.stack import ports
from tests.services.debian import NotInstalledError, cache, libraries, unpack
from tests.services.killable import ServerProcess

# The second one has a program that makes data folders.
PACKAGES = ("mariadb-server-core", "mariadb-client-core")
# It is small, since tests have small tables. A killed server loses nothing that it has confirmed, as the system keeps
# what a process has written.
OPTIONS = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=32M",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--performance-schema=OFF",
    "--skip-name-resolve",
    "--bind-address=127.0.0.1",
    # The log of changes, from which they can be captured: whole rows, before and after each change.
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
)
USER, PASSWORD, DATABASE = "caraway", "test-password", "garden"


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a MariaDB; `root` is where its packages were unpacked, None if the system has them."""

    server: Path
    installer: Path
    root: Path | None

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which they run."""
        if self.root is None:
            return dict(os.environ)
        paths = (str(self.root / "usr/bin"), os.environ.get("PATH", ""))
        return {**os.environ, "LD_LIBRARY_PATH": libraries(self.root), "PATH": ":".join(paths)}

    @property
    def base(self) -> list[str]:
        """The option that says where the programs are."""
        return [] if self.root is None else [f"--basedir={self.root / 'usr'}"]


def programs() -> Programs:
    """Return the programs of the system, or else those in the cache.

    Raises:
        NotInstalledError: There are none.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    if (server := shutil.which("mariadbd", path=path)) and (installer := shutil.which("mariadb-install-db", path=path)):
        return Programs(Path(server), Path(installer), None)
    root = _unpacked()
    if (root / "usr/sbin/mariadbd").is_file():
        return Programs(root / "usr/sbin/mariadbd", root / "usr/bin/mariadb-install-db", root)
    raise NotInstalledError("tests need MariaDB: run ./run setup, or install mariadb-server (Debian), mariadb (macOS)")


def make_ready() -> None:
    """Fetch the programs if the machine has none.

    Raises:
        NotInstalledError: They can't be fetched on this machine.
    """
    try:
        programs()
    except NotInstalledError:
        if not shutil.which("apt-get"):
            raise
        unpack("MariaDB", PACKAGES, _unpacked())


def _unpacked() -> Path:
    return cache() / "mariadb"


class MariaDB(ServerProcess):
    """A server with an empty database `garden`, and a user who may do everything."""

    stop_s = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "mariadb.log", working_folder=folder)
        self.folder = folder
        self.port = ports.choose()
        self.data = folder / "data"

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts the server, and its environment; make its data folder before."""
        found = programs()
        user = ["--user=root"] if os.geteuid() == 0 else []
        # A socket's path may have 107 characters, and the one of a test's folder can be longer, so the socket has a
        # relative path, which is in the data folder. Clients use TCP.
        # A server that starts removes the temporary tables of all others that have the same folder for them.
        temporary = self.folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        here = [f"--datadir={self.data}", f"--tmpdir={temporary}", *found.base, *user]
        if not self.data.exists():
            command = [str(found.installer), "--no-defaults", *here, "--auth-root-authentication-method=normal"]
            made = subprocess.run(
                [*command, "--skip-test-db", "--skip-name-resolve"],
                env=found.environment,
                check=False,
                capture_output=True,
                text=True,
            )
            assert made.returncode == 0, made.stdout + made.stderr
        init = self.folder / "init.sql"
        # A server that reads this file again changes nothing.
        init.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        command = [str(found.server), "--no-defaults", *here, f"--port={self.port}", "--socket=mariadb.sock"]
        return [*command, "--pid-file=mariadb.pid", f"--init-file={init}", *OPTIONS], found.environment

    def _answers(self) -> bool:
        """Return whether the server greets a client, which it does when it has run the first statements."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                return bool(connection.recv(1))
        except OSError:
            return False

    @property
    def url(self) -> str:
        """The address of the database, with user and password."""
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"


@contextmanager
def running_mariadb(folder: Path, *options: str) -> Iterator[MariaDB]:
    """Run a server until the block ends."""
    server = MariaDB(folder)
    try:
        server.start(*options)
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    try:
        make_ready()
    except NotInstalledError as error:
        # Everything but the tests of MySQL works without it, and those fail with the same message.
        sys.stderr.write(f"{error}\n")
