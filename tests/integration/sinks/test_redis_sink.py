"""Keys that sinks write in a real Redis: they equal the dataset, have each batch once, and belong to one sink."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.stack import ports
from caraway.dataplane.sinks.changes import Row
from caraway.dataplane.sinks.redis.rows import RedisRows
from caraway.dataplane.sinks.redis.writer import RedisWriter, check
from caraway.dataplane.sinks.writer import Batch, Refusal, SignIn
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    ListType,
    optional,
)
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import RedisConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import RedisSystem, SecretRef
from tests.services.certificates import write_certificates
from tests.services.redis import RedisServer, running_redis
from tests.unit.dataplane.sinks.table_contract import check_deaths
from tests.unit.dataplane.sinks.world import change, of_columns, plan_of, row, writing

SIGN_IN = SignIn(resolve=str)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    with closing(shared_server.client()) as client:
        client.flushall()
    return shared_server


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with closing(server.client(decode_responses=True)) as client:
        yield client


def sink_at(server: RedisServer, prefix: str = "heavy", **more: Any) -> SinkSpec:
    of_connector = {name: more.pop(name) for name in ("format", "ttl_us") if name in more}
    system = RedisSystem(name="own", host="127.0.0.1", port=server.port, **more)
    return SinkSpec(
        connector=RedisConnector(system=system, prefix=prefix, **of_connector), how="incremental", create=True
    )


def rows(client: Any, target: str = "heavy_main_v3") -> dict[str, float]:
    return {key.partition(":")[2]: float(client.hget(key, "v")) for key in client.scan_iter(f"{target}:*")}


def opened(plan: SinkPlan, name: str = "sink", **more: Any) -> RedisWriter:
    found = RedisWriter(writing(plan, name=name, **more))
    found.positions()
    return found


@contextmanager
def killing_connections(server: RedisServer) -> Iterator[None]:
    """Close all connections to a server again and again, until the block ends."""
    ended = threading.Event()

    def kill() -> None:
        with closing(server.client()) as killer:
            while not ended.is_set():
                killer.client_kill_filter(_type="normal", skipme=True)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        try:
            yield
        finally:
            ended.set()
        killed.result()


@pytest.mark.parametrize("seed", range(2))
def test_the_keys_are_the_dataset_whatever_dies_and_whoever_writes(server: RedisServer, client: Any, seed: int) -> None:
    def die(writer: RedisWriter, batch: Batch) -> bool:
        with killing_connections(server), suppress(UnavailableError):
            writer.write(batch)
        return True

    plan = plan_of(sink=sink_at(server))
    check_deaths(seed, lambda: opened(plan), die, lambda: sorted(rows(client).items()))


COLUMNS: dict[str, DataType] = {
    "id": INT,
    "place": optional(STRING),
    "flag": BOOL,
    "raw": BYTES,
    "day": DATE,
    "seen": DATETIME,
    "price": DecimalType(scale=2),
    "tags": ListType(STRING),
    "grams": FLOAT,
    "note": optional(STRING),
}
STORED = (2**63 - 1, "a:b%c", True, b"\0\xff", 20_000, -1, "12.50", ["ä", ""], 2.5, None)
SHOWN: Mapping[str, object] = {
    "id": 2**63 - 1,
    "place": "a:b%c",
    "is_red": True,
    "raw": "AP8=",
    "day": "2024-10-04",
    "seen": "1969-12-31T23:59:59.999999Z",
    "price": "12.50",
    "tags": ["ä", ""],
    "grams": 2.5,
    "note": None,
    "at": "2023-11-14T22:13:20.000001Z",
}


@pytest.mark.parametrize("kind", ["hash", "json"])
def test_values_of_all_types_arrive(server: RedisServer, client: Any, kind: str) -> None:
    sink = replace(sink_at(server, "odd * [name]", format=kind), renames=(("flag", "is_red"),))
    plan = of_columns(plan_of(sink=sink), COLUMNS, ["id", "place"])
    first = Row(1_700_000_000_000_001, STORED)
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("x", None, first, 0)], {0: 1}))
        key = f"odd * [name]_main_v3:{2**63 - 1}:a%3Ab%25c"
        if kind == "json":
            assert orjson.loads(client.get(key)) == SHOWN
        else:
            texts = {
                name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in SHOWN.items()
            }
            # A hash lacks nulls.
            del texts["note"]
            assert client.hgetall(key) == texts
        # A field that becomes null is gone, and a key with a null is a key as any other.
        second = Row(1, (*STORED[:7], [], 0.5, "now"))
        unnamed = Row(1, (1, None, *STORED[2:]))
        writer.write(Batch([change("x", first, second, 1), change("y", None, unnamed, 2)], {0: 3}))
        writer.write(Batch([change("x", second, first, 3)], {0: 4}))
        assert client.exists("odd * [name]_main_v3:1:%") == 1
        found = orjson.loads(client.get(key)) if kind == "json" else client.hgetall(key)
        assert found == (SHOWN if kind == "json" else texts)
        writer.write(Batch([change("x", first, None, 4), change("y", unnamed, None, 5)], {0: 6}))
        assert list(client.scan_iter("odd*")) == []


@given(
    two=st.lists(
        st.tuples(st.text(), st.none() | st.text(alphabet="a%:25"), st.integers(-(2**63), 2**63 - 1)),
        min_size=2,
        max_size=2,
    )
)
def test_no_two_rows_have_one_key(two: Sequence[tuple[object, ...]]) -> None:
    columns: dict[str, DataType] = {"a": STRING, "b": optional(STRING), "c": INT}
    plan = plan_of(sink=SinkSpec(connector=RedisConnector(system=RedisSystem(name="r", host="h"), prefix="p")))
    for keys in (["a"], ["b"], ["a", "b"], ["a", "b", "c"]):
        chosen = RedisRows(of_columns(plan, {name: columns[name] for name in keys}, keys))
        first, second = ([value for name, value in zip(columns, each, strict=True) if name in keys] for each in two)
        assert (chosen.key(Row(0, tuple(first))) == chosen.key(Row(0, tuple(second)))) is (first == second)


@pytest.mark.parametrize("kind", ["hash", "json"])
def test_keys_expire_some_time_after_they_were_written(server: RedisServer, client: Any, kind: str) -> None:
    plan = plan_of(sink=sink_at(server, format=kind, ttl_us=3_600_000_000))
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    assert 0 < client.pttl("heavy_main_v3:a") <= 3_600_000
    assert client.pttl("caraway:heavy_main_v3") == -1


def test_changes_that_redis_refuses_become_dead_letters_and_the_others_are_written(
    server: RedisServer, client: Any
) -> None:
    refused: list[Refusal] = []
    before = client.config_get("proto-max-bulk-len")["proto-max-bulk-len"]
    client.config_set("proto-max-bulk-len", 1024 * 1024)
    try:
        plan = of_columns(plan_of(sink=sink_at(server)), {"k": STRING, "v": FLOAT, "raw": BYTES}, ["k"])
        values = {"a": b"", "b": b"x" * 900_000, "c": b"x" * 700_000}
        changes = [change(key, None, Row(1, (key, 1.0, raw)), n) for n, (key, raw) in enumerate(values.items())]
        with closing(opened(plan, refuse=refused.extend)) as writer:
            writer.write(Batch(changes, {0: 3}))
            assert [(each.change.offset, "1,200,000 bytes" in each.reason) for each in refused] == [(1, True)]
            assert (rows(client), writer.positions()) == ({"a": 1.0, "c": 1.0}, {0: 3})
    finally:
        client.config_set("proto-max-bulk-len", before)


def test_a_new_sink_removes_the_rows_of_an_earlier_one_and_spares_other_keys(server: RedisServer, client: Any) -> None:
    plan = plan_of(sink=sink_at(server))
    client.set("heavy_main_v33:a", "other")
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    with closing(opened(plan, "second")) as writer:
        assert writer.positions() == {}
        # Readers have the earlier rows until there are new ones.
        assert rows(client) == {"a": 1.0}
        writer.write(Batch([change("b", None, row("b", 2.0), 0)], {0: 1}))
        assert rows(client) == {"b": 2.0}
    # The first one comes back, by a rollback: its position isn't that of these rows.
    with closing(opened(plan)) as writer:
        assert writer.positions() == {}
    assert client.get("heavy_main_v33:a") == "other"
    client.set("other_main_v3:a", "somebody's")
    other = plan_of(sink=sink_at(server, "other"))
    with pytest.raises(UnavailableError, match=r"other_main_v3:\* already, which somebody else has written"):
        RedisWriter(writing(other))
    with pytest.raises(CommitError, match="somebody else has written"):
        check(other, SIGN_IN)
    assert client.get("other_main_v3:a") == "somebody's"


def test_a_writer_that_replaces_an_earlier_sink_leaves_the_rows_of_one_that_has_taken_over(
    server: RedisServer, client: Any
) -> None:
    """Two writers remove what an earlier sink left; the paused one must not remove what the other has written since."""
    plan = plan_of(sink=sink_at(server))
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    batch = Batch([change("b", None, row("b", 2.0), 0)], {0: 1})
    overtaken = list[bool]()

    def keep() -> bool:
        # The second call is between the claim of the position and the removal of the first keys.
        overtaken.append(True)
        if len(overtaken) == 2:
            with closing(opened(plan, "second")) as other:
                other.write(batch)
        return True

    with closing(opened(plan, "second", keep=keep)) as paused, pytest.raises(UnavailableError, match="another server"):
        paused.write(batch)
    assert rows(client) == {"b": 2.0}


def test_a_redis_that_was_emptied_or_restored_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    with running_redis(folder) as own, closing(own.client(decode_responses=True)) as client:
        plan = plan_of(sink=sink_at(own))
        first, second = (Batch([change(key, None, row(key, 1.0), n)], {0: n + 1}) for n, key in enumerate("ab"))
        writer = opened(plan)
        writer.write(first)
        log = max((folder / "appendonlydir").glob("*.incr.aof"))
        backup = log.read_bytes()
        writer.write(second)
        # The server is killed, and a backup restored.
        own.kill()
        log.write_bytes(backup)
        own.start()
        with pytest.raises(UnavailableError):
            writer.write(Batch([], {0: 3}))
        writer.close()
        with closing(opened(plan)) as writer:
            assert (writer.positions(), rows(client)) == ({0: 1}, {"a": 1.0})
            writer.write(second)
            client.flushall()
            with pytest.raises(UnavailableError, match="is gone; all is written again"):
                writer.write(Batch([], {0: 3}))
        with closing(opened(plan)) as writer:
            assert writer.positions() == {}
            writer.write(first)
            assert rows(client) == {"a": 1.0}


def test_a_transaction_that_a_crash_cuts_in_half_is_taken_back_with_its_position(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    with running_redis(folder) as own, closing(own.client(decode_responses=True)) as client:
        plan = plan_of(sink=sink_at(own))
        with closing(opened(plan)) as writer:
            writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
            log = max((folder / "appendonlydir").glob("*.incr.aof"))
            whole = log.stat().st_size
            writer.write(Batch([change("b", None, row("b", 1.0), 1), change("a", row("a", 1.0), None, 2)], {0: 3}))
            content = log.read_bytes()
        for cut in range(whole, len(content), 40):
            own.kill()
            log.write_bytes(content[:cut])
            own.start()
            with closing(opened(plan)) as again:
                assert (again.positions(), rows(client)) == ({0: 1}, {"a": 1.0}), cut


def test_a_changed_password_takes_effect_without_a_commit_and_no_error_shows_it(
    server: RedisServer, client: Any
) -> None:
    secret = SecretRef(arn="env:PW")
    values: dict[object, str] = {secret: "first-password"}
    sign_in = SignIn(resolve=lambda given: values.get(given, given))  # type: ignore[arg-type]
    rights = ["~heavy_main_v3:*", "~caraway:heavy_main_v3", "-@all"]
    commands = [
        f"+{each}"
        for each in ["watch", "multi", "exec", "discard", "hgetall", "hset", "set", "pexpire", "del", "unlink", "scan"]
    ]
    client.execute_command("ACL", "SETUSER", "feeder", "reset", "on", ">first-password", *rights, *commands)
    plan = plan_of(sink=sink_at(server, username="feeder", password=secret))
    check(plan, sign_in)
    try:
        with closing(opened(plan, sign_in=sign_in)) as writer:
            writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
            client.execute_command("ACL", "SETUSER", "feeder", "resetpass", ">second-password")
            client.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(UnavailableError):
                writer.write(Batch([], {0: 2}))
        with pytest.raises(UnavailableError, match="correct the user's name or password") as caught:
            opened(plan, sign_in=sign_in)
        assert "first-password" not in str(caught.value)
        values[secret] = "second-password"
        with closing(opened(plan, sign_in=sign_in)) as writer:
            assert writer.positions() == {0: 1}
        client.execute_command("ACL", "SETUSER", "feeder", "-hset")
        with pytest.raises(CommitError, match="the user needs watch, multi, exec"):
            check(plan, sign_in)
        with closing(opened(plan, sign_in=sign_in)) as writer:
            with pytest.raises(UnavailableError, match="the user needs watch") as caught:
                writer.write(Batch([change("b", None, row("b", 12345.0), 0)], {0: 2}))
            assert "12345" not in str(caught.value)
    finally:
        client.execute_command("ACL", "DELUSER", "feeder")


def test_a_sink_that_cannot_be_written_is_refused_with_the_place_and_the_remedy(
    server: RedisServer, client: Any
) -> None:
    check(plan_of(sink=sink_at(server)), SIGN_IN)
    assert client.dbsize() == 0

    def refusal(sink: SinkSpec, sign_in: SignIn = SIGN_IN) -> str:
        with pytest.raises(CommitError) as caught:
            check(plan_of(sink=sink), sign_in)
        return str(caught.value)

    assert "127.0.0.1:1" in refusal(sink_at(server), SignIn(resolve=str, endpoints={"own": "127.0.0.1:1"}))
    assert "correct the user's name or password" in refusal(sink_at(server, username="nobody", password="x"))
    with closing(opened(plan_of(sink=sink_at(server)))) as writer:
        # The server becomes a replica while the writer is open.
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(UnavailableError, match="it is a replica"):
                writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")


def test_a_full_redis_takes_the_batch_later(server: RedisServer, client: Any) -> None:
    batch = Batch([change("a", None, row("a", 1.0), 0)], {0: 1})
    with closing(opened(plan_of(sink=sink_at(server)))) as writer:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(UnavailableError, match="raise maxmemory"):
                writer.write(batch)
        finally:
            client.config_set("maxmemory", 0)
        assert rows(client) == {}
        writer.write(batch)
        assert rows(client) == {"a": 1.0}


def test_tls_verifies_the_server(tmp_path: Path) -> None:
    authority, certificate = tmp_path / "ca.pem", tmp_path / "server.pem"
    write_certificates(authority, certificate)
    with running_redis(
        tmp_path / "redis",
        *("--port", "0", "--tls-auth-clients", "no", "--tls-ca-cert-file", str(authority)),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(certificate)),
        *("--tls-port", str(port := ports.choose())),
    ) as own:
        own.port = port
        plan, sign_in = plan_of(sink=sink_at(own, transport="tls")), SignIn(resolve=str, ca_file=str(authority))
        check(plan, sign_in)
        with closing(opened(plan, sign_in=sign_in)) as writer:
            writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
            assert writer.positions() == {0: 1}
        with pytest.raises(CommitError, match="certificate"):
            check(plan, SIGN_IN)
        with pytest.raises(CommitError):
            check(plan_of(sink=sink_at(own)), sign_in)
