"""Attacks by the library of a connector, in the process of its own: nothing of the platform is reached or harmed."""

import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits
from caraway.dataplane.addresses.networks import Networks, Service
from caraway.dataplane.addresses.reach import Hold
from caraway.dataplane.confined import process as confined_process
from caraway.dataplane.confined.fleet import Leased
from caraway.dataplane.confined.process import ConnectorProcess
from caraway.dataplane.confined.rights import Rights, rights_of, secrets_of
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.remote import RemoteWriter
from caraway.dataplane.sinks.writer import Batch
from caraway.dataplane.sources import remote
from caraway.dataplane.sources.reader import LiveRow, SourceContext
from caraway.dataplane.sources.remote import RemoteReader
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.connectors import KafkaConnector
from caraway.graph.plan.model import IngestPlan
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.systems import KafkaSystem, RegistryFormat, SchemaRegistry, SecretRef
from caraway.process.confinement.policy import LAST_USER, Confinement
from tests.timeouts import scaled
from tests.unit.dataplane.confined.hostile import LIES, ROWS, STATES
from tests.unit.dataplane.sinks.world import SINK, writing
from tests.unit.dataplane.sinks.world import plan_of as sink_plan_of
from tests.unit.dataplane.sources.test_sources import USERS, World, plan_of, rows
from tests.unit.process.children.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="macOS has no means that Caraway uses; docs/operate/security.md says so"
    ),
]

HOSTILE = "tests.unit.dataplane.confined.hostile"
SECRET = "hunter2-of-the-platform"
SYSTEM = KafkaSystem(
    name="k",
    bootstrap_servers="b:1",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    username="u",
    password=SecretRef(arn="store:named"),
)
Attempt = Callable[[str, object], str]
EVERYWHERE = tuple(map(ip_network, ("0.0.0.0/0", "::/0")))


@contextmanager
def hostile(confinement: Confinement, *services: Service) -> Iterator[ConnectorProcess]:
    """Yield the process of a connector, which may reach all but some services."""
    hold = Hold(Networks(EVERYWHERE, True, lambda: services))
    limits = ConnectorLimits(hold.networks, confinement=confinement, memory_mb=256)
    rights = Rights(confinement, {})
    with hold.held():
        process = ConnectorProcess("hostile", limits, rights, factory=f"{HOSTILE}:Hostile", arguments=(), answers={})
    try:
        yield process
    finally:
        process.close()


@contextmanager
def attempting(confinement: Confinement, *services: Service) -> Iterator[Attempt]:
    """Yield how to attempt something in such a process."""
    with hostile(confinement, *services) as process:
        yield lambda name, argument: str(process.call("attempt", name, str(argument)))


CONNECTOR = Confinement(network=True)


def test_files_and_variables_of_the_platform_are_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "token").write_text(SECRET)
    (data / "token").chmod(0o644)
    monkeypatch.setenv("CARAWAY_POSTGRES__URL", f"postgresql://caraway:{SECRET}@127.0.0.1/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with attempting(Confinement(network=True, hidden=(data,), readable=(tmp_path,))) as attempt:
        for path in (data / "token", "/etc/shadow", f"/proc/{os.getpid()}/environ"):
            assert attempt("read", path).startswith("PermissionError"), path
        assert SECRET not in attempt("environment", "")


@pytest.fixture
def ports() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a listener of somebody, and one of the platform."""
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as own:
        for each in (free, own):
            each.settimeout(0.0)
        yield free, own


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_no_way_to_connect_leads_to_a_service_of_the_platform(ports: tuple[socket.socket, socket.socket]) -> None:
    free, own = ports
    with attempting(CONNECTOR, Service("Kafka", "127.0.0.1", port_of(own))) as attempt:
        for way in ("Python", "C", "thread", "IPv6"):
            assert attempt(way, port_of(free)) == "done", way
            assert attempt(way, port_of(own)).startswith("PermissionError"), way
        assert attempt("fast open", port_of(free)).startswith("PermissionError")
        assert attempt("Unix", "/run/systemd/private").startswith("PermissionError")
    with pytest.raises(BlockingIOError):
        own.accept()


def two_leaders() -> tuple[Producer, dict[int, int]]:
    """Return the client of two brokers, and who leads which partition: both do, which librdkafka decides by chance."""
    while True:
        host = Producer({"test.mock.num.brokers": 2})
        host.list_topics("loot", timeout=scaled(30))
        found = host.list_topics("loot", timeout=scaled(30)).topics["loot"].partitions
        leaders: dict[int, int] = {number: partition.leader for number, partition in found.items()}
        if set(leaders.values()) == {1, 2}:
            return host, leaders


def test_a_broker_that_names_a_refused_address_as_another_broker_leads_nowhere() -> None:
    """Librdkafka's own brokers of tests name each other, as an attacker's broker names the platform's."""
    host, leaders = two_leaders()
    brokers = {broker.id: broker for broker in host.list_topics("loot", timeout=scaled(30)).brokers.values()}
    for number in range(40):
        host.produce("loot", str(number).encode(), partition=number % 4)
    assert host.flush(scaled(30)) == 0
    asked = " ".join([f"{brokers[1].host}:{brokers[1].port} loot", *map(str, sorted(leaders))])
    with attempting(CONNECTOR) as attempt:
        assert attempt("brokers", asked) == " ".join(map(str, sorted(leaders))), "the attack would have worked"
    with attempting(CONNECTOR, Service("Kafka", "127.0.0.1", brokers[2].port)) as attempt:
        of_the_first = sorted(number for number, leader in leaders.items() if leader == 1)
        assert attempt("brokers", asked) == " ".join(map(str, of_the_first))


def test_an_address_that_changes_while_it_is_looked_at_leads_nowhere_else(
    ports: tuple[socket.socket, socket.socket],
) -> None:
    free, own = ports
    with attempting(CONNECTOR, Service("Kafka", "127.0.0.1", port_of(own))) as attempt:
        assert attempt("race", f"{port_of(free)} {port_of(own)}") == "connected True"
    with pytest.raises(BlockingIOError):
        own.accept()


def test_no_port_of_the_platform_is_taken_by_a_connector(ports: tuple[socket.socket, socket.socket]) -> None:
    _, own = ports
    port = port_of(own)
    own.close()
    user = os.geteuid() or LAST_USER
    with socket.socket() as served, attempting(replace(CONNECTOR, user=user)) as attempt:
        served.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # The system asks who has opened a socket: this one is the platform's, where it runs as the connectors' user.
        os.chown(served.fileno(), user, user)
        served.bind(("127.0.0.1", port))
        served.listen()
        assert attempt("take", port).startswith("PermissionError")
        served.close()
        assert attempt("take", port).startswith("PermissionError")
        assert attempt("listen", port).startswith("PermissionError")


def test_no_connector_starts_a_program_not_even_to_compile_schemas() -> None:
    registry = SchemaRegistry(format=RegistryFormat.PROTOBUF, registry="confluent", url="http://registry")
    connector = KafkaConnector(system=SYSTEM, topic="t", format=registry)
    assert connector.format_name == "protobuf"
    with attempting(rights_of(UNLIMITED, connector, str).confinement) as attempt:
        assert attempt("start", "/bin/true").startswith("PermissionError")
        assert attempt("compile", 'syntax = "proto3"; message Order {}') == "Order"


def test_only_secrets_that_the_definition_names_are_told() -> None:
    connector = KafkaConnector(system=SYSTEM, topic="t")
    look_up = secrets_of(connector, lambda secret: f"value of {secret}")
    assert "store:named" in look_up("store:named", None, [])
    with pytest.raises(UnknownEntityError, match="doesn't name it"):
        look_up("store:other", None, [])
    with pytest.raises(UnknownEntityError):
        look_up("store:named", None, ["part"])


def test_the_identity_of_the_server_is_only_there_for_what_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    connector = KafkaConnector(system=SYSTEM, topic="t")
    for limits, has in ((UNLIMITED, True), (ConnectorLimits(own_rights=("s3://mine",)), False)):
        environment = rights_of(limits, connector, str).environment
        assert (SECRET in environment.values()) is has
        assert environment["AWS_REGION"] == "eu-west-1"


def test_a_message_that_is_too_large_ends_its_process() -> None:
    with hostile(CONNECTOR) as process, pytest.raises(UnavailableError, match="its process has ended"):
        process.call("announce", (64 << 20) + 1, seconds=scaled(20))


def test_an_error_has_a_text_that_can_be_shown_everywhere() -> None:
    with hostile(CONNECTOR) as process:
        with pytest.raises(UnavailableError) as raised:
            process.call("attempt", "fail strangely", "")
        assert 0 < len(str(raised.value).encode()) < 5_000


def test_each_call_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("SILENT_S", "CALL_S"):
        with monkeypatch.context() as patch, hostile(CONNECTOR) as process:
            patch.setattr(f"caraway.dataplane.confined.process.{limit}", 0.2)
            with pytest.raises(UnavailableError, match="didn't answer within"):
                process.call("attempt", "hang", "", seconds=confined_process.CALL_S)


# Sources --------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sources of Kafka read by a reader of numbers."""
    monkeypatch.setattr(KafkaConnector, "reader", f"{HOSTILE}:Numbers")


def source_of(does: str) -> IngestPlan:
    connector = KafkaConnector(system=SYSTEM, topic=does)
    return plan_of(SourceSpec(connector=connector, cdc=Cdc.UPSERT, disorder_us=0))


def reader_of(plan: IngestPlan, resolve: Any = str, seconds: float | None = None) -> RemoteReader:
    live = [LiveRow(key={"user": "u"}, at_us=1)] * 3
    context = SourceContext(
        name="n", source=plan.source, dataset=USERS, columns=None, resolve=resolve, live_rows=lambda: live
    )
    return RemoteReader(plan.source.connector, context, ConnectorLimits(memory_mb=256), seconds)


def test_a_batch_crosses_with_all_that_the_server_needs() -> None:
    with closing(reader_of(source_of("fine"))) as reader:
        assert reader.seek({"next": 100}, {}) == {"next": 100}
        batch = reader.poll(rows=10, size=1, timeout_s=0)
        assert batch is not None
        assert batch.rows.column("age", 3, 5) == [103, 104]
        assert batch.rows.row(9) == {"user": "u109", "age": 109, "at": 1_700_000_000}
        assert batch.origin(9) == {"partition": "0", "offset": 109}
        assert [batch.mark(0), batch.mark(9)] == ["0/100", "0/109"]
        assert batch.run is not None
        assert batch.run(2, 5) == "0/102~104"
        assert batch.rows.names() == {"user", "age", "at"}
        assert (batch.position, reader.lag()) == ({"next": 110}, ROWS - 110)
        assert reader.ahead(["0/109", "0/110"]) == {"0/110"}
        progress = reader.progress()
        assert progress is not None
        assert (progress.done, progress.unit) == (110, "rows")


def test_a_library_that_fails_hurts_its_own_source_only_and_the_next_process_goes_on() -> None:
    for does, said in (
        ("aborts", r"\[Kafka: k\].*its process has ended \(SIGABRT\).*connectors\.memory_mb"),
        ("eats", r"it needs more memory than the 256 MiB of connectors\.memory_mb"),
        ("hangs up", "EOFError: the file ends too early"),
    ):
        with closing(reader_of(source_of(does))) as reader, closing(reader_of(source_of("fine"))) as other:
            reader.seek({}, {})
            other.seek({}, {})
            with pytest.raises(UnavailableError, match=said):
                reader.poll(rows=10, size=1, timeout_s=0)
            assert other.poll(rows=10, size=1, timeout_s=0) is not None


def test_a_secret_that_is_not_named_is_not_told_to_the_reader_either() -> None:
    asked: list[object] = []

    def resolve(secret: object) -> str:
        asked.append(secret)
        return "value"

    with pytest.raises(UnknownEntityError, match=r"store:other.*doesn't name it"):
        reader_of(source_of("secrets"), resolve)
    assert asked == [SYSTEM.password]


@pytest.mark.parametrize("lie", [*LIES, *STATES])
def test_a_process_that_tells_what_cannot_be_is_ended_and_nothing_of_it_is_taken(
    lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying = lambda *args, **more: ConnectorProcess(*args, **more | {"factory": f"{HOSTILE}:Lying"})  # noqa: E731
    monkeypatch.setattr(remote, "ConnectorProcess", lying)
    with closing(reader_of(source_of(lie))) as reader:
        reader.seek({}, {})
        with pytest.raises(UnavailableError, match="answered what it must not, and was ended"):
            reader.poll(rows=250, size=1, timeout_s=0)
        with pytest.raises(UnavailableError, match="its process has ended"):
            reader.acknowledge({})


def children() -> set[int]:
    """Return the processes of connectors."""
    return {each.pid for each in psutil.Process().children(recursive=True) if _is_confined(each)}


def _is_confined(process: psutil.Process) -> bool:
    return Path(f"/proc/{process.pid}/oom_score_adj").read_text(encoding="ascii").strip() == "1000"


def test_a_trial_is_over_in_time_whatever_call_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = lambda *args, **more: ConnectorProcess(*args, **more | {"factory": f"{HOSTILE}:Silent"})  # noqa: E731
    monkeypatch.setattr(remote, "ConnectorProcess", silent)
    with closing(reader_of(source_of("fine"), seconds=scaled(2))) as reader:
        batch = reader.peek(10)
        with pytest.raises(UnavailableError, match="didn't answer within"):
            batch.rows.column("age", 0, 10)


def test_the_rows_of_the_dataset_are_read_once_in_a_call() -> None:
    with closing(reader_of(source_of("reads the dataset"))) as reader:
        reader.seek({}, {})
        for _ in range(2):
            batch = reader.poll(rows=10, size=1, timeout_s=0)
            assert batch is not None
            # A mark of each piece of rows comes with them.
            assert len(batch.rows) == 4
    with closing(reader_of(source_of("reads the dataset again"))) as reader:
        reader.seek({}, {})
        with pytest.raises(UnavailableError, match="read once in a call"):
            reader.poll(rows=10, size=1, timeout_s=0)


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_a_process_that_does_not_answer_is_ended_with_its_source_or_sink(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, begun = children(), threading.Event()

    class Hanging:
        """A worker whose connector doesn't answer."""

        owned, stopping = True, threading.Event()

        def step(self) -> bool:
            begun.set()
            if kind == "source":
                with closing(reader_of(source_of("hangs"))) as reader:
                    reader.seek({}, {})
                    reader.poll(rows=10, size=1, timeout_s=0)
            else:
                monkeypatch.setattr(type(SINK.connector), "writer", f"{HOSTILE}:Writer")
                change = Change(b"hangs", None, Row(1, ("a", 1.0, None)), 1, 0, 0)
                with closing(RemoteWriter(writing(sink_plan_of()), ConnectorLimits(memory_mb=256))) as writer:
                    writer.write(Batch([change], {0: 1}))
            raise AssertionError("it answered")

        def stop(self) -> None:
            pass

    worker: Any = Hanging()
    plan: Any = source_of("hangs") if kind == "source" else sink_plan_of()
    hold: Any = nullcontext
    secrets = HiddenSecrets(str)
    work = Leased(plan, worker, title=kind, secrets=secrets, hold=hold, retry_s=(1.0, 1.0), finish=worker.stop).work
    work.start()
    eventually(lambda: len(children() - before) == 1)
    assert work.stop(scaled(3))
    assert children() == before


def test_a_killed_process_loses_and_doubles_nothing() -> None:
    world = World({})
    before = children()
    kills, said = 0, set[str]()
    plan = source_of("fine")
    worker = world.worker_of("users", Target(plan), partial(reader_of, plan), erased=ErasedKeys(dict))
    for step in range(1_000):
        world.now += 0.4
        if step % 4 == 2:
            for pid in children() - before:
                os.kill(pid, signal.SIGKILL)
                kills += 1
        try:
            worker.step()
        except UnavailableError as error:
            said.add(str(error))
        if worker.lag == 0:
            break
    worker.stop()
    assert kills > 3
    assert all("its process has ended (SIGKILL)" in text for text in said)
    found = Counter(values[1] for _, values in rows(world, plan))
    assert found == Counter(range(ROWS))
