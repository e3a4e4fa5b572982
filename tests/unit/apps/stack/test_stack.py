import errno
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from caraway.apps.stack import ports
from caraway.apps.stack import stack as stack_module
from caraway.apps.stack.errors import AlreadyRunningError, PartFailedError, PortInUseError
from caraway.apps.stack.external import ExternalService
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.record import StackRecord, read_record, write_record
from caraway.apps.stack.report import report_stack
from caraway.apps.stack.stack import Stack
from caraway.client.discovery import RunningStack, ServerAddress, find_server, running_stacks
from caraway.process.children import runner as runner_module
from caraway.process.children.part import Part, PartState, PartStatus
from caraway.process.children.process import start
from caraway.process.children.process_table import created_at, is_alive
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import PostgresSettings, Settings
from tests.unit.process.children.fake_parts import COMPUTING, DYING, SLOW, FakePart
from tests.unit.process.children.waiting import eventually

pytestmark = pytest.mark.slow

CONNECTOR = Path("/connector.jar")


class FakeStack(Stack):
    """A stack whose own programs are tiny processes, with an external Kafka and Postgres."""

    programs: tuple[str, ...] = ("server", "engine")

    def _programs(self, path: Path) -> list[Part]:
        parts = {
            "server": FakePart(
                folder=path, name="server", after=frozenset({"kafka"}), port=self._record.ports["server"]
            ),
            "engine": FakePart(folder=path, name="engine"),
            "dying": FakePart(folder=path, name="engine", program=DYING),
        }
        return [parts[name] for name in self.programs]


@pytest.fixture(autouse=True)
def _without_services(monkeypatch: pytest.MonkeyPatch) -> None:
    jars = JarSet(broker=(), connector=(CONNECTOR,))
    monkeypatch.setattr(stack_module, "ensure_jars", lambda settings, on_progress: jars)
    monkeypatch.setattr(stack_module, "check_access", lambda servers: None)
    monkeypatch.setattr(stack_module, "BrokerAdmin", lambda servers: SimpleNamespace(problem=lambda: None, warning=""))
    monkeypatch.setattr(stack_module, "check_postgres", lambda url: None)
    monkeypatch.setattr(runner_module, "STARTING_SECONDS", 0.02)
    monkeypatch.setattr(runner_module, "BACKOFF_SECONDS", (0.0, 0.01))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        kafka=KafkaSettings(bootstrap_servers="broker:1"),
        postgres=PostgresSettings(url="postgresql://u:p@host:2/d"),
    )


@pytest.fixture
def stack(settings: Settings) -> Iterator[FakeStack]:
    stack = FakeStack(settings)
    yield stack
    stack.stop()


def record_of(settings: Settings) -> StackRecord:
    record = read_record(DataFolder(settings.data_dir).record)
    assert record is not None
    return record


def part_of(stack: Stack, name: str) -> PartStatus:
    return next(part for part in stack.status() if part.name == name)


def kill(stack: Stack, name: str) -> None:
    pid = part_of(stack, name).pid
    assert pid is not None
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def start_and_listen(stack: Stack) -> list[str]:
    """Start a stack, and return what it tells, now and later."""
    told: list[str] = []
    stack.start(lambda text, parts: told.append(text))
    return told


def states(parts: Sequence[PartStatus]) -> dict[str, PartState]:
    return {part.name: part.state for part in parts}


def test_a_stack_starts_reports_and_stops(stack: FakeStack) -> None:
    told = start_and_listen(stack)
    assert set(states(stack.status()).values()) == {PartState.RUNNING}
    assert told[-1] == "Ready"
    assert told.index("kafka: running") < told.index("server: preparing")
    record = record_of(stack.settings)
    assert (record.state, record.pid) == ("running", os.getpid())
    assert record.urls == {"server": stack.url, "kafka": "broker:1", "postgres": "postgresql://u:p@host:2/d"}
    stack.stop()
    report = report_stack(DataFolder(stack.settings.data_dir))
    assert report.state == "stopped"
    assert {part.state for part in report.parts} == {"stopped", "running"}
    assert {part.name for part in report.parts if part.external} == {"kafka", "postgres"}


def test_parts_get_settings_with_all_addresses(stack: FakeStack) -> None:
    stack.start()
    assert stack.settings.server.port == record_of(stack.settings).ports["server"]
    assert stack.settings.spark.jars == (CONNECTOR,)
    assert stack.url == f"http://127.0.0.1:{stack.settings.server.port}"


def test_no_url_before_the_start(stack: FakeStack) -> None:
    with pytest.raises(PartFailedError, match=r"call start\(\) first"):
        assert stack.url


def test_ports_are_remembered_until_they_are_taken(settings: Settings) -> None:
    with FakeStack(settings) as first:
        port = first.settings.server.port
    with FakeStack(settings) as second:
        assert second.settings.server.port == port
    assert port is not None
    with socket.create_server(("127.0.0.1", port)):
        third = FakeStack(settings)
        told = start_and_listen(third)
        assert third.settings.server.port not in {port, None}
        third.stop()
    assert f"Port {port} of server is taken by another program; from now on it is {third.settings.server.port}" in told
    with FakeStack(settings) as fourth:
        assert fourth.settings.server.port == third.settings.server.port


def test_the_port_is_the_first_free_one_from_8100_on(settings: Settings, tmp_path: Path) -> None:
    with ExitStack() as stack:
        # Other programs and other tests may use some of these ports.
        lowest, held = ports.reserve_from(8100)
        held.close()
        one = FakeStack(settings)
        one.start()
        stack.callback(one.stop)
        assert one.settings.server.port is not None
        assert one.settings.server.port >= lowest
        other = FakeStack(settings.model_copy(update={"data_dir": tmp_path / "other"}))
        told = start_and_listen(other)
        stack.callback(other.stop)
        assert other.settings.server.port is not None
        assert other.settings.server.port > one.settings.server.port
    assert f"Port 8100 of server is taken by another program; from now on it is {other.settings.server.port}" in told


def test_no_other_program_gets_the_port_while_the_server_is_down(stack: FakeStack) -> None:
    stack.start()
    port = stack.settings.server.port
    assert port is not None
    kill(stack, "server")
    assert not ports.is_free(port)
    stack.stop()
    assert ports.is_free(port)


def test_a_new_stack_has_a_token_and_is_found(stack: FakeStack, tmp_path: Path) -> None:
    stack.start()
    folder = DataFolder(stack.settings.data_dir)
    token = folder.token.read_text().strip()
    assert stack.settings.server.admin_token_file == folder.token
    assert (folder.token.stat().st_mode & 0o777, folder.run.stat().st_mode & 0o777) == (0o600, 0o700)
    assert find_server(data_dir=folder.path) == ServerAddress(stack.url, token)
    assert RunningStack(stack.url, folder.path) in running_stacks()
    assert token not in folder.record.read_text()
    assert not [value for value in stack.settings.environment().values() if token in value]
    stack.stop()
    assert RunningStack(stack.url, folder.path) not in running_stacks()
    with FakeStack(stack.settings):
        assert folder.token.read_text().strip() == token
    assert tmp_path in folder.path.parents


def test_a_stack_has_no_tokens_only_if_the_settings_say_so(settings: Settings) -> None:
    open_to_all = settings.model_copy(update={"server": ServerSettings(tokens=False)})
    with FakeStack(open_to_all) as stack:
        assert stack.settings.server.admin_token_file is None
        assert not DataFolder(settings.data_dir).token.exists()
        assert find_server(stack.url).token == ""


def test_a_token_file_of_a_setting_is_used(settings: Settings, tmp_path: Path) -> None:
    chosen = settings.model_copy(update={"server": ServerSettings(admin_token_file=tmp_path / "chosen")})
    with FakeStack(chosen) as stack:
        assert stack.settings.server.admin_token_file == tmp_path / "chosen"
        assert not DataFolder(settings.data_dir).token.exists()


def test_a_list_of_stacks_that_cannot_be_written_is_no_obstacle(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    stack = FakeStack(settings)
    told = start_and_listen(stack)
    stack.stop()
    assert any(line.startswith("Clients in other folders must be given the URL") for line in told)


def test_a_port_that_a_setting_names_is_not_exchanged(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        stack = FakeStack(settings.model_copy(update={"server": ServerSettings(port=port)}))
        with pytest.raises(PortInUseError, match=f"Port {port}") as caught:
            stack.start()
    assert "CARAWAY_SERVER__PORT" in str(caught.value)
    assert not DataFolder(settings.data_dir).is_claimed()


def test_a_second_stack_in_the_same_folder_is_refused(stack: FakeStack, settings: Settings) -> None:
    stack.start()
    with pytest.raises(AlreadyRunningError):
        FakeStack(settings).start()
    assert set(states(stack.status()).values()) == {PartState.RUNNING}
    assert record_of(settings).state == "running"


def test_a_part_that_does_not_start_stops_the_others_and_quotes_its_log(stack: FakeStack) -> None:
    stack.programs = ("server", "dying")
    with pytest.raises(PartFailedError, match="no luck today") as caught:
        stack.start()
    assert "engine doesn't start" in str(caught.value)
    assert stack.status() == ()
    report = report_stack(DataFolder(stack.settings.data_dir))
    assert report.state == "failed"
    assert all(part.pid is None for part in report.parts)


def test_a_killed_part_comes_back_and_is_counted(stack: FakeStack) -> None:
    stack.start()
    kill(stack, "engine")
    eventually(lambda: part_of(stack, "engine").restarts == 1)
    eventually(lambda: part_of(stack, "engine").state is PartState.RUNNING)
    report = report_stack(DataFolder(stack.settings.data_dir))
    assert report.state == "running"
    assert report.memory_bytes > 1_000_000
    assert [part.restarts for part in report.parts if part.name == "engine"] == [1]


def was_restarted(stack: FakeStack, times: int) -> bool:
    return part_of(stack, "engine").restarts == times


# Rich raises `SystemExit` if the reader of a pipe has ended.
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), OSError(errno.EIO, "no terminal"), SystemExit(1)])
def test_parts_are_watched_even_if_no_report_can_be_printed(stack: FakeStack, error: BaseException) -> None:
    def fail(text: str, parts: object) -> None:
        del text, parts
        raise error

    stack.start(fail)
    for number in (1, 2):
        kill(stack, "engine")
        eventually(partial(was_restarted, stack, number))
        eventually(lambda: part_of(stack, "engine").state is PartState.RUNNING)


def test_the_stack_does_not_run_while_a_part_starts_again(stack: FakeStack) -> None:
    stack.start()
    folder = DataFolder(stack.settings.data_dir)
    seen: list[tuple[str, str]] = []
    # The record is read in the callback, since a part's next state replaces the one of its start within milliseconds.
    stack.report_to(lambda text, parts: seen.append((text.split(" (")[0], report_stack(folder).state)))
    kill(stack, "engine")
    eventually(lambda: ("engine: running", "running") in seen)
    assert seen == [
        ("engine: restarting", "starting"),
        ("engine: preparing", "starting"),
        ("engine: starting", "starting"),
        ("engine: running", "running"),
    ]


def test_a_stack_starts_from_its_first_moment_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(settings.data_dir)
    jars = JarSet(broker=(), connector=(CONNECTOR,))
    seen: list[str] = []

    def fetch(settings: Settings, on_progress: object) -> JarSet:
        del settings, on_progress
        seen.append(report_stack(folder).state)
        return jars

    monkeypatch.setattr(stack_module, "ensure_jars", fetch)
    for _ in range(2):
        with FakeStack(settings):
            assert report_stack(folder).state == "running"
    assert seen == ["starting", "starting"]


def test_the_logs_of_the_last_start_are_kept(settings: Settings) -> None:
    log = DataFolder(settings.data_dir).log("engine")
    for _ in range(2):
        with FakeStack(settings):
            assert log.read_text() == "working\n"
    assert log.with_name("engine.log.1").read_text() == "working\n"
    assert not log.with_name("engine.log.2").exists()


def test_a_stack_waits_for_a_part_longer_than_for_services(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "START_SECONDS", 0.2)

    class SlowStack(FakeStack):
        def _programs(self, path: Path) -> list[Part]:
            return [FakePart(folder=path, name="engine", program=SLOW.format(seconds=1, work=COMPUTING))]

    with SlowStack(settings) as stack:
        assert set(states(stack.status()).values()) == {PartState.RUNNING}
    broker = SimpleNamespace(problem=lambda: "connection refused", warning="")
    monkeypatch.setattr(stack_module, "BrokerAdmin", lambda servers: broker)
    with pytest.raises(PartFailedError, match=r"Not ready after 0 s: .*kafka"):
        SlowStack(settings).start()


def test_killing_does_not_wait(stack: FakeStack) -> None:
    stack.start()
    before = [part for part in stack.status() if part.pid]
    stack.kill()
    eventually(lambda: not any(is_alive(part.pid, part.process_created_at) for part in before))


def test_what_a_killed_supervisor_left_behind_is_ended(stack: FakeStack, settings: Settings, tmp_path: Path) -> None:
    fake = FakePart(folder=tmp_path)
    left = start(fake.launch(), tmp_path / "log", signal.SIGTERM)
    eventually(fake.ready_file.exists)
    folder = DataFolder(settings.data_dir)
    folder.claim()
    folder.release()
    part = PartStatus(name="engine", state=PartState.RUNNING, pid=left.pid, process_created_at=created_at(left.pid))
    stranger = PartStatus(name="server", state=PartState.RUNNING, pid=os.getpid(), process_created_at=1.0)
    write_record(folder.record, StackRecord(state="running", pid=1, process_created_at=1.0, parts=(part, stranger)))
    assert report_stack(folder).state == "killed"
    assert {part.name: part.state for part in report_stack(folder).parts} == {"engine": "running", "server": "dead"}
    reaper = threading.Thread(target=left.wait)
    reaper.start()
    stack.start()
    reaper.join(10)
    assert left.returncode == 0


def test_an_external_service_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, str | None] = {"now": "connection refused"}
    monkeypatch.setattr("caraway.apps.stack.external.WATCH_SECONDS", 0.02)
    history: list[PartStatus] = []
    service = ExternalService(
        "kafka", lambda: answers["now"], on_change=history.append, warning=lambda: "one replica only"
    )
    service.start()
    steps: list[tuple[str | None, Callable[[], bool]]] = [
        (None, lambda: service.status.state is PartState.UNRESPONSIVE),
        ("gone", lambda: service.status.state is PartState.RUNNING),
        (None, lambda: service.status.message == "gone"),
    ]
    for answer, reached in steps:
        eventually(reached)
        answers["now"] = answer
    assert service.stop(None)
    assert [status.message for status in history] == ["connection refused", "one replica only", "gone"]
    assert all(status.external and status.pid is None for status in history)


def test_a_full_disk_does_not_end_the_supervision(stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    told = start_and_listen(stack)

    def full(path: Path, record: StackRecord) -> None:
        raise OSError(28, "No space left on device", str(path), len(record.parts))

    monkeypatch.setattr(stack_module, "write_record", full)
    kill(stack, "engine")
    eventually(lambda: any(part.restarts and part.state is PartState.RUNNING for part in stack.status()))
    assert any("No space left" in text for text in told)
