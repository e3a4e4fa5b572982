"""A private server of Oracle's MySQL for tests, beside the one of MariaDB (`tests.services.mariadb`).

Only long tests use it. If the machine has no such server, they unpack Debian's newest packages, with the libraries
that these need, into the cache.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.debian import NotInstalledError, cache
from tests.services.mariadb import DATABASE, PASSWORD, USER, MariaDB

PACKAGE = "mysql-server-core"
# Debian's stable versions have MariaDB only.
SUITE = "sid"
OPTIONS = (
    "--mysqlx=OFF",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--performance-schema=OFF",
    "--skip-name-resolve",
    "--bind-address=127.0.0.1",
    "--secure-file-priv=",
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-row-metadata=FULL",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
)


@dataclass(frozen=True, slots=True)
class Program:
    """The server's program: the words before its options."""

    command: tuple[str, ...]


def program() -> Program:
    """Return the program of the system, or else the one in the cache, which is fetched if need be.

    Raises:
        NotInstalledError: There is none, and it couldn't be fetched.
    """
    if (found := shutil.which("mysqld", path=f"{os.environ.get('PATH', '')}:/usr/sbin")) and "MariaDB" not in _said(
        found
    ):
        return Program((found, "--no-defaults"))
    root = cache() / "mysql"
    if not (root / "usr/sbin/mysqld").is_file():
        if not shutil.which("apt-get"):
            raise NotInstalledError("long tests need MySQL 8 or newer: install mysql-server")
        _fetch(root)
    # It was built for other libraries than the system's, so it is started with its own loader.
    (loader,) = (root / "usr/lib64").glob("ld-linux-*.so.*")
    libraries = {str(found.parent) for found in (root / "usr/lib").glob("**/*.so*")}
    return Program(
        (
            str(loader),
            *("--library-path", ":".join(sorted(libraries))),
            str(root / "usr/sbin/mysqld"),
            "--no-defaults",
            f"--basedir={root / 'usr'}",
            f"--lc-messages-dir={root / 'usr/share/mysql'}",
            f"--character-sets-dir={root / 'usr/share/mysql/charsets'}",
            f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
        )
    )


def _said(command: str) -> str:
    return subprocess.run([command, "--version"], check=False, capture_output=True, text=True).stdout


def _fetch(root: Path) -> None:
    """Unpack the package and all that it needs, by apt with a list of packages of its own."""
    shutil.rmtree(root, ignore_errors=True)
    work = root.with_name("mysql.unfinished")
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("apt/lists/partial", "apt/cache/archives/partial", "tree", "debs"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    sources = work / "newest.sources"
    sources.write_text(_newest())
    apt = [
        "apt-get",
        *("-o", f"Dir::State::lists={work / 'apt/lists'}"),
        *("-o", f"Dir::State::status={work / 'status'}"),
        *("-o", f"Dir::Cache={work / 'apt/cache'}"),
        *("-o", f"Dir::Etc::sourcelist={sources}"),
        *("-o", "Dir::Etc::sourceparts=/dev/null"),
        *("-o", "Debug::NoLocking=1"),
        *("-o", "APT::Sandbox::User="),
        *("-o", "Acquire::Retries=3"),
        "-qq",
    ]
    try:
        _run([*apt, "update"], work)
        planned = _run([*apt, "--simulate", "--no-install-recommends", "install", PACKAGE], work)
        names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
        _run([*apt, "download", *names], work / "debs")
        for package in (work / "debs").glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(work / "tree")], work)
    except subprocess.CalledProcessError as error:
        raise NotInstalledError(f"MySQL couldn't be fetched by apt: {error.stderr.strip()}") from error
    (work / "tree").rename(root)
    shutil.rmtree(work)


def _newest() -> str:
    """Return where the newest packages are: at the address from which the machine has Debian's."""
    for line in Path("/etc/apt/sources.list.d/debian.sources").read_text().splitlines():
        if line.startswith("URIs:"):
            keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
            return f"Types: deb\n{line}\nSuites: {SUITE}\nComponents: main\nSigned-By: {keys}\n"
    raise NotInstalledError("this machine has no address of Debian's packages")


def _run(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


class MySQL(MariaDB):
    """A server with an empty database `garden`, and a user who may do everything."""

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts the server, and its environment; make its data folder before."""
        user = ["--user=root"] if os.geteuid() == 0 else []
        command = [*program().command, f"--datadir={self.data}", *user, *OPTIONS]
        if not self.data.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            made = subprocess.run(
                [*command, "--initialize-insecure"], check=False, capture_output=True, text=True, cwd=self.folder
            )
            assert made.returncode == 0, made.stdout + made.stderr
        init = self.folder / "init.sql"
        init.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        here = [f"--port={self.port}", "--socket=mysql.sock", "--pid-file=mysql.pid", f"--init-file={init}"]
        return [*command, *here], dict(os.environ)


@contextmanager
def running_mysql(folder: Path) -> Iterator[MySQL]:
    """Run a server until the block ends."""
    server = MySQL(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
