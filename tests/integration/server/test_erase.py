"""Tests of erased keys: a server does what the mock does, forgets them for good, and finishes after a crash."""


# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson
import pandas as pd
import polars as pl
import pytest

from caraway import Client, F, connectors, dataset, featureset, field, meta
from caraway.dataplane.topics.erased_keys import erasure_of
from caraway.graph.plan.model import Column
from caraway.process.secrets.keyring import open_keyring
from caraway.state.database import connect
from caraway.state.erasures import ErasedKey, ErasureLog
from caraway.testing import MockClient
from tests.integration.archive.archive_process import ArchiveProcess, served_rows
from tests.integration.databases import content_of
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records

GUESTS = connectors.Webhook(name="guests")
PRIVATE = "m.private@example.com"


def stays(version: int) -> Any:
    """Return a dataset that has topics of its own: servers share those of equal definitions, and their erased keys."""

    @meta(owner="a@b.co")
    @connectors.source(GUESTS.endpoint(f"stays{version}"), disorder="1h", cdc="upsert")
    @dataset(index=True, version=version)
    class Stays:
        guest: str = field(key=True, erase_key=True)
        room: int = field(key=True)
        nights: int
        at: datetime = field(timestamp=True)

    return Stays


Stays, Nights, Visits = stays(1), stays(2), stays(3)


@meta(owner="a@b.co")
@featureset
class Night:
    guest: str
    room: int
    nights: int = F(Nights.nights, default=0)


def stay(guest: str, room: int, nights: int, day: int) -> dict[str, Any]:
    return {"guest": guest, "room": room, "nights": nights, "at": f"2026-01-{day:02d}T00:00:00Z"}


ASKED = pd.DataFrame({"guest": [PRIVATE, PRIVATE, "bob", "bob", "eve"], "room": [1, 2, 1, 2, 1]})


def seen(client: Client, at: str | None = None, of: Any = Stays) -> list[int | None]:
    times = None if at is None else pd.Series([pd.Timestamp(at)] * len(ASKED))
    data: Any
    data, found = client.lookup(of, ASKED, ["nights"], timestamps=times)
    nights = [int(value) if there else None for value, there in zip(data.tolist(), found.tolist(), strict=True)]
    assert data.isna().tolist() == [value is None for value in nights]
    return nights


def scenario(client: Client, show: Callable[[Callable[[], object], object], None]) -> None:
    """Log, erase and log again; `show` waits until a function returns a value."""
    client.commit("stays", datasets=[Stays], incremental=True)
    client.log("guests", "stays1", pd.DataFrame([stay(PRIVATE, 1, 3, 1), stay(PRIVATE, 2, 4, 2), stay("bob", 1, 5, 1)]))
    show(lambda: seen(client), [3, 4, 5, None, None])
    assert client.erase(Stays, pd.DataFrame({"guest": [PRIVATE]})).status_code == 200
    # The rows are gone at once, as of all times.
    assert seen(client) == [None, None, 5, None, None]
    assert seen(client, "2026-01-01T12:00:00Z") == [None, None, 5, None, None]
    client.log("guests", "stays1", pd.DataFrame([stay(PRIVATE, 1, 7, 3), stay("bob", 2, 8, 3), stay("eve", 1, 1, 3)]))
    show(lambda: seen(client), [None, None, 5, 8, 1])
    # An erasure may be repeated, and may name keys that never existed.
    client.erase(Stays, pd.DataFrame({"guest": [PRIVATE, "nobody"]}))
    client.erase("Stays", pd.DataFrame({"guest": ["eve"]}))
    assert seen(client) == [None, None, 5, 8, None]
    for wrong in ({"room": [1]}, {"guest": ["a"], "room": [1]}, {"guest": [None]}):
        with pytest.raises(ValueError, match="erase key"):
            client.erase(Stays, pd.DataFrame(wrong))


@pytest.mark.spec("featuresets:5.6:3", "featuresets:6:9")
def test_the_mock_and_a_server_do_the_same(server: ServerProcess) -> None:
    def at_once(ask: Callable[[], object], expected: object) -> None:
        assert ask() == expected

    def soon(ask: Callable[[], object], expected: object) -> None:
        eventually(lambda: ask() == expected, lambda: f"{ask()}\n{server.said()}")

    scenario(MockClient(), at_once)
    with Client(str(server.settings.server.url), branch="erasing") as client:
        client.init_branch("erasing")
        scenario(client, soon)
        client.delete_branch("erasing")


def erasures(server: ServerProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.http.get("/dataset/Stays/erasures").json()["erasures"]
    return found


def removed(server: ServerProcess, digest: str) -> bool:
    """Return whether an index reports that no entry of a key is left in it."""
    return any(e["digest"] == digest and e["recorded_at"] and e["places"] for e in erasures(server))


def ask_for_log(server: ServerProcess, guest: str, workflow: str) -> None:
    data = {"Night.guest": [guest], "Night.room": [1]}
    asked = server.query(["Night.nights"], data, tuple(data), log=True, workflow=f"nights-{workflow}")
    assert asked.status_code == 200, asked.text


def archived(server: ServerProcess, workflow: str) -> list[str]:
    """Return the guests in the table of served features."""
    rows = served_rows(server.settings)
    if rows.is_empty():
        return []
    found = rows.filter(pl.col("workflow") == f"nights-{workflow}")["inputs"].to_list()
    return sorted((orjson.loads(inputs)["Night.guest"] for inputs in found), key=[PRIVATE, "bob", "eve"].index)


def on_disk(server: ServerProcess, text: str) -> set[str]:
    """Return the names of the index's files that contain a text; RocksDB compresses large values, so keys are short."""
    found = set()
    for path in (server.settings.data_dir / "index").iterdir():
        # RocksDB may delete a file between the listing and the read.
        with suppress(FileNotFoundError, IsADirectoryError):
            if text.encode() in path.read_bytes():
                found.add(path.name)
    return found


@pytest.mark.full(
    reason="kills and lost folders for a minute; tests/unit/apps/server/erasure and archive/ have each part"
)
def test_what_is_erased_stays_so_after_kills_and_losses(
    own_server: Callable[[], ServerProcess], kafka: str, postgres: str, archived_by: Callable[..., ArchiveProcess]
) -> None:
    server = own_server()
    archived_by(server).start()
    url = str(server.settings.server.url)
    with Client(url) as client:
        client.commit("nights", datasets=[Nights], featuresets=[Night])
        rows = [stay(PRIVATE, 1, 3, 1), stay(PRIVATE, 2, 4, 2), stay("bob", 1, 5, 1), stay("eve", 1, 9, 1)]
        client.log("guests", "stays2", pd.DataFrame(rows))
        eventually(lambda: seen(client, of=Nights) == [3, 4, 5, None, 9], server.said)
    for name in (PRIVATE, "bob"):
        ask_for_log(server, name, "before")
    eventually(lambda: archived(server, "before") == [PRIVATE, "bob"], server.said)
    topic = server.topic("Stays")
    before = end_of(kafka, topic)

    # The server is killed as soon as it has written the request down: nothing else was done.
    server.kill()
    keyring = open_keyring(server.settings.key_file)
    guest = Column(name="guest", dtype=Nights.to_spec().fields[0].dtype)
    found = erasure_of(topic, (guest,), [PRIVATE], keyring.current.id, keyring.current.mac_key)
    engine = connect(postgres)
    ErasureLog(engine).add(
        [
            ErasedKey(
                request="r",
                branch="main",
                dataset="Stays",
                topic=topic,
                columns=found.columns,
                key_id=found.key_id,
                digest=found.digest,
                account="someone",
                token_id="",
            )
        ]
    )
    engine.dispose()
    server.start()
    with Client(url) as client:
        eventually(lambda: seen(client, of=Nights) == [None, None, 5, None, 9], server.said)
        eventually(lambda: removed(server, found.digest.hex()), server.said)
        # The list of all tables since the last start has their first and last keys (docs/inside/rocksdb_index.md).
        # RocksDB deletes the file of a replaced table when the last read of it ends.
        eventually(lambda: {name.partition("-")[0] for name in on_disk(server, PRIVATE)} <= {"MANIFEST"}, server.said)
        assert on_disk(server, "bob")
        assert erasures(server)[0]["account"] == "someone"
        # The rows go from the served features too: those that are archived, and those that come from now on.
        eventually(lambda: archived(server, "before") == ["bob"], server.said)
        for name in (PRIVATE, "eve"):
            ask_for_log(server, name, "after")
        eventually(lambda: archived(server, "after") == ["eve"], server.said)

        # The server is killed right after its answer and its index is lost: the topic alone brings all rows back but
        # these.
        client.erase(Nights, pd.DataFrame({"guest": ["eve"]}))
        server.kill()
        shutil.rmtree(server.settings.data_dir / "index")
        server.start()
        eventually(lambda: seen(client, of=Nights) == [None, None, 5, None, None], server.said)
        eventually(lambda: all(e["places"] and e["recorded_at"] for e in erasures(server)), server.said)
        assert on_disk(server, PRIVATE) == set()

        # Later rows of the key don't even reach the topic, valid or not.
        end = end_of(kafka, topic)
        client.log("guests", "stays2", pd.DataFrame([stay(PRIVATE, 3, 1, 5)]))
        letters = end_of(kafka, "caraway.dead-letters")
        bad = {
            "webhook": "guests",
            "endpoint": "stays2",
            "data": [{"guest": PRIVATE, "room": "x", "nights": 1, "at": 0}],
        }
        assert server.http.post("/log", json=bad).json()["rejected"] == 1
        assert end_of(kafka, topic) == end
        assert end_of(kafka, "caraway.dead-letters") == letters

    # The topic has one record for each key and request, without the key; the rows from before are still there.
    values = records(kafka, topic)
    assert before == 4
    assert sum(PRIVATE.encode() in value for value in values[:before]) == 2
    assert not any(PRIVATE.encode() in value for value in values[before:])
    assert len(values) - before >= 2
    assert PRIVATE not in content_of(postgres)
    assert PRIVATE not in server.log_file.read_text()


def test_keys_stay_erased_on_a_further_topic_of_the_same_definition(server: ServerProcess, kafka: str) -> None:
    rows = pd.DataFrame([stay(PRIVATE, 1, 3, 1), stay("bob", 1, 5, 1)])
    on = {"X-Caraway-Branch": "again"}
    with Client(str(server.settings.server.url), branch="again") as client:
        client.init_branch("again")
        client.commit("visits", datasets=[Visits])
        client.log("guests", "stays3", rows)
        eventually(lambda: seen(client, of=Visits) == [3, None, 5, None, None], server.said)
        client.erase(Visits, pd.DataFrame({"guest": [PRIVATE]}))
        client.commit("none", datasets=[meta(owner="a@b.co", deleted=True)(Visits)])
        client.commit("visits", datasets=[meta(owner="a@b.co")(Visits)])
        client.log("guests", "stays3", rows)
        eventually(lambda: seen(client, of=Visits) == [None, None, 5, None, None], server.said)
        (erasure,) = server.http.get("/dataset/Stays/erasures", headers=on).json()["erasures"]
        digest, further = bytes.fromhex(erasure["digest"]), f"{erasure['topic']}.2"
        eventually(lambda: any(digest in value for value in records(kafka, further)), server.said)
        assert not any(PRIVATE.encode() in value for value in records(kafka, further))
        client.delete_branch("again")
