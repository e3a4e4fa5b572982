"""Real Postgres and Kafka under supervision, without Caraway's own programs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from caraway.apps.stack import ports
from caraway.apps.stack.errors import AlreadyRunningError, DataFolderError
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.apps.stack.record import read_record
from caraway.apps.stack.report import report_stack
from caraway.apps.stack.stack import Stack
from caraway.dataplane.topics.connection import client_config
from caraway.dataplane.topics.credentials import sign_in
from caraway.process.children.part import Part, PartState, PartStatus
from caraway.process.children.process_table import is_alive
from caraway.process.settings.settings import PostgresSettings, Settings, load_settings
from tests.alone import running
from tests.timeouts import deadline_in

# The program of a test's child process: two real services, until it is killed.
PROGRAM = """
import sys, time
from pathlib import Path
from caraway.process.settings.settings import load_settings
from tests.integration.stack.test_supervision import Services
Services(load_settings(Path(sys.argv[1]))).start()
print("ready", flush=True)
time.sleep(600)
"""


class Services(Stack):
    """A stack without engine and server."""

    def _programs(self, path: Path) -> list[Part]:
        assert path.is_dir()
        return []

    def part(self, name: str) -> PartStatus:
        return next(part for part in self.status() if part.name == name)


@pytest.fixture
def settings(tmp_path: Path, jars: JarSet) -> Settings:
    assert jars.broker
    return load_settings(tmp_path / "data")


@pytest.fixture(scope="module")
def stack(jars: JarSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Start a stack for the tests that don't change it."""
    assert jars.connector
    with Services(load_settings(tmp_path_factory.mktemp("stack") / "data")) as stack:
        yield stack


def eventually(condition: Callable[[], bool], limit: float = 60.0) -> None:
    deadline = deadline_in(limit)
    while not condition():
        assert time.monotonic() < deadline, "it didn't happen in time"
        time.sleep(0.05)


def database(stack: Stack) -> str:
    assert stack.settings.postgres.url
    return stack.settings.postgres.url


def brokers(stack: Stack) -> str:
    assert stack.settings.kafka.bootstrap_servers
    return stack.settings.kafka.bootstrap_servers


def topics(stack: Stack) -> set[str]:
    admin = AdminClient(client_config(sign_in(stack.settings.kafka)))
    return set(admin.list_topics(timeout=20).topics)


def make_topic(stack: Stack, name: str) -> None:
    admin = AdminClient(client_config(sign_in(stack.settings.kafka)))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=30)


@pytest.mark.full(reason="half a minute; each run kills the engine of a whole stack (tests/e2e/test_kill.py)")
def test_services_survive_sigkill_and_restart(settings: Settings) -> None:
    with Services(settings) as stack:
        make_topic(stack, "kept")
        with psycopg.connect(database(stack), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        first_addresses = (database(stack), stack.settings.kafka.bootstrap_servers)
        for part in stack.status():
            assert part.pid is not None
            os.kill(part.pid, signal.SIGKILL)
        eventually(lambda: all(part.restarts and part.state is PartState.RUNNING for part in stack.status()))
        assert "kept" in topics(stack)
        with psycopg.connect(database(stack)) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
    with Services(settings) as stack:
        assert (database(stack), stack.settings.kafka.bootstrap_servers) == first_addresses
        assert "kept" in topics(stack)
        with psycopg.connect(database(stack)) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


@pytest.mark.full(reason="a stack of its own; tests/unit/apps/stack/test_stack.py has the reports, tests/e2e a stack")
def test_starting_twice_is_refused_and_harms_nothing(stack: Services) -> None:
    with pytest.raises(AlreadyRunningError, match="caraway down"):
        Services(load_settings(stack.settings.data_dir)).start()
    assert {part.state for part in stack.status()} == {PartState.RUNNING}


@pytest.mark.full(reason="a stack of its own; tests/unit/apps/stack/test_stack.py has the reports, tests/e2e a stack")
def test_report_of_running_services(stack: Services) -> None:
    report = report_stack(DataFolder(stack.settings.data_dir))
    assert report.state == "running"
    by_name = {part.name: part for part in report.parts}
    assert by_name["kafka"].port == stack.part("kafka").port
    # The bounds fit a broker with a heap of 384 MB, and a Postgres whose shared buffers are counted once.
    assert 50e6 < (by_name["kafka"].memory_bytes or 0) < 800e6
    assert 5e6 < (by_name["postgres"].memory_bytes or 0) < 200e6
    assert all((part.uptime_seconds or 0) > 0 for part in report.parts)


@pytest.mark.full(reason="a stack of its own; tests/unit/apps/stack/test_stack.py has the reports, tests/e2e a stack")
def test_external_services_are_used_and_watched(stack: Services, tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "other",
        kafka=stack.settings.kafka,
        postgres=PostgresSettings(url=database(stack)),
    )
    with Services(settings) as guest:
        assert {part.state for part in guest.status()} == {PartState.RUNNING}
        assert all(part.external and part.pid is None for part in guest.status())
        assert not (tmp_path / "other" / "kafka").exists()


@pytest.mark.full(reason="kills a supervisor; tests/unit/process/children ends what a parent leaves")
def test_nothing_lingers_after_a_killed_supervisor(settings: Settings) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(settings.data_dir)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout
        assert supervisor.stdout.readline() == "ready\n"
        record = read_record(DataFolder(settings.data_dir).record)
        supervisor.kill()
    assert record is not None
    assert len(record.parts) == 2
    if sys.platform == "linux":
        eventually(lambda: not any(is_alive(part.pid, part.process_created_at) for part in record.parts))
    assert report_stack(DataFolder(settings.data_dir)).state == "killed"
    with Services(settings) as stack:
        assert not any(is_alive(part.pid, part.process_created_at) for part in record.parts)
        assert {part.state for part in stack.status()} == {PartState.RUNNING}


def test_postgres_ignores_a_pid_file_whose_pid_belongs_to_another_process(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", ports.choose())
    with running(server, tmp_path / "log"):
        pass
    stale = tmp_path / "postgres" / "cluster" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{stale.parent}\n0\n1\n\n127.0.0.1\n0 0\nready\n")
    with running(server, tmp_path / "log") as pid:
        assert pid != os.getpid()
    assert psutil.Process().is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="needs mount")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize(
    ("options", "reason"), [("size=1m", "is full"), ("ro", "can't be written")], ids=["full", "read-only"]
)
def test_a_disk_that_cannot_be_used(tmp_path: Path, options: str, reason: str) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this machine doesn't let us mount")
    try:
        with pytest.raises(DataFolderError, match=reason) as caught:
            Services(load_settings(tmp_path / "data")).start()
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert "--data" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataFolderError, match="can't be written"):
        Services(load_settings(tmp_path / "data")).start()
    tmp_path.chmod(0o700)
