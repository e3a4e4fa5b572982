"""The reader of MongoDB over pymongo, against a stand-in, and against FerretDB where it is installed."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from pymongo import MongoClient

from caraway.apps.stack import ports
from caraway.dataplane.sources.tables.mongo import MongoReader, address_of, plain
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.sources import Cdc
from caraway.graph.systems import MongoSystem
from tests.integration.server.server_process import eventually
from tests.integration.sources.contexts import Saved, context_of
from tests.integration.sources.mongo_server import MongoServer, running

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def reader_of(address: str, cursor: str = "at", user: str = "", password: str = "") -> MongoReader:
    system = MongoSystem(name="herd", host="cluster.example.com", database="bees", username=user, password=password)
    connector = TableConnector(system=system, table="hives", cursor=cursor)
    return MongoReader(connector, context_of(connector, endpoints={"herd": address}, cdc=Cdc.APPEND))


def documents(count: int) -> list[dict[str, Any]]:
    return [{"_id": bson.ObjectId(), "n": n, "at": BEGIN + timedelta(seconds=n // 7)} for n in range(count)]


def round_of(reader: MongoReader, saved: Saved) -> list[object]:
    """Read a round to its end, and return the numbers of its rows."""
    found: list[object] = []
    reader._rounds.next_at = 0.0
    while True:
        batch = reader.poll(rows=50, size=1 << 20, timeout_s=0.0)
        if batch is None:
            return found
        found += batch.rows.column("n", 0, len(batch.rows))
        saved.save(batch)
        if reader._place.most is None:
            return found


@pytest.mark.spec("connectors:11:14")
def test_a_collection_is_read_and_then_its_new_documents() -> None:
    with running(MongoServer()) as server:
        server.collections["hives"] = documents(500)
        saved, reader = Saved(), reader_of(server.address)
        saved.position = reader.seek({}, {})
        assert Counter(round_of(reader, saved)) == Counter(range(500))
        assert round_of(reader, saved) == []
        late = {"_id": bson.ObjectId(), "n": 500, "at": BEGIN + timedelta(seconds=71)}
        server.collections["hives"].append(late)
        assert round_of(reader, saved) == [500]
        reader.close()
        again = reader_of(server.address)
        again.seek(saved.position, saved.items)
        assert round_of(again, saved) == []
        again.close()


def test_an_answer_that_is_cut_off_is_an_error_and_nothing_is_lost() -> None:
    with running(MongoServer()) as server:
        server.collections["hives"] = documents(500)
        saved, reader = Saved(), reader_of(server.address)
        reader.seek({}, {})
        found: list[object] = []
        server.cut_after = server._pages + 8
        with pytest.raises(UnavailableError, match=r"Mongo herd.*collection hives"):  # noqa: PT012 (pages come first)
            reader._rounds.next_at = 0.0
            for _ in range(30):
                batch = reader.poll(rows=50, size=1 << 20, timeout_s=0.0)
                if batch is not None:
                    found += batch.rows.column("n", 0, len(batch.rows))
                    saved.save(batch)
        assert found
        reader.close()
        server.cut_after = None
        again = reader_of(server.address)
        again.seek(saved.position, saved.items)
        assert Counter(found + round_of(again, saved)) == Counter(range(500))
        again.close()


@pytest.mark.parametrize("cursor", ["number", "whole", "exact", "text"])
def test_cursors_may_be_numbers_and_texts_that_are_times(cursor: str) -> None:
    with running(MongoServer()) as server:
        server.collections["hives"] = [
            {
                "_id": n,
                "n": n,
                "number": n // 3,
                "whole": float(n // 3),
                "exact": Decimal128(str(n // 3)),
                "text": f"2024-05-01 00:00:{n // 3:02}",
            }
            for n in range(120)
        ]
        saved, reader = Saved(), reader_of(server.address, cursor)
        reader.seek({}, {})
        assert Counter(round_of(reader, saved)) == Counter(range(120))
        reader.close()


def test_documents_become_rows() -> None:
    number = bson.ObjectId()
    document = {
        "_id": number,
        "n": bson.Int64(2**40),
        "at": BEGIN,
        "extra": {"price": Decimal128("1.50"), "parts": [number, {"seen": BEGIN}], "raw": bson.Binary(b"\x00\x01")},
    }
    assert plain(document) == {
        "_id": str(number),
        "n": 2**40,
        "at": BEGIN,
        "extra": {"price": Decimal("1.50"), "parts": [str(number), {"seen": BEGIN}], "raw": b"\x00\x01"},
    }
    with running(MongoServer()) as server:
        # A time beyond Python's years is an error of its own document.
        far = {"_id": 7, "n": 1, "at": BEGIN + timedelta(1), "far": DatetimeMS(10**16)}
        server.collections["hives"] = [document, far]
        reader = reader_of(server.address)
        batch = reader.peek(5)
        row: Any = batch.rows.row(0)
        assert {name: value for name, value in row.items() if value is not None} == plain(document)
        assert list(batch.rows.faults) == [1]
        assert "column far" in batch.rows.faults[1]
        assert batch.origin(1)["cursor"] == (BEGIN + timedelta(1)).isoformat()
        reader.close()


def test_documents_without_a_cursor_are_counted_and_left_out() -> None:
    with running(MongoServer()) as server:
        server.collections["hives"] = [*documents(3), {"_id": 1, "n": -1}, {"_id": 2, "n": -2, "at": "yesterday"}]
        saved, reader = Saved(), reader_of(server.address)
        reader.seek({}, {})
        assert round_of(reader, saved) == [0, 1, 2]
        assert reader._database.bounds(reader._chosen.cursor).nulls == 2
        reader.close()


def test_what_is_missing_says_what_to_do() -> None:
    with running(MongoServer()) as server:
        server.collections["other"] = documents(1)
        reader = reader_of(server.address)
        with pytest.raises(UnavailableError, match=r"herd.*collection hives: no document has the cursor at.*other"):
            reader.peek(1)
        reader.close()
        server.collections["hives"] = [{"_id": 1, "n": 1, "at": 1.5}]
        reader = reader_of(server.address)
        with pytest.raises(UnavailableError, match=r"the cursor at is 1.5 in the document 1"):
            reader.peek(1)
        reader.close()
        server.collections["hives"] = [{"_id": 1, "n": 1, "at": bson.ObjectId()}]
        reader = reader_of(server.address)
        with pytest.raises(UnavailableError, match=r"at of type ObjectId can't be a cursor"):
            reader.peek(1)
        reader.close()


def test_the_form_of_the_address_is_that_of_the_host() -> None:
    assert address_of("cluster.example.com", None) == "mongodb+srv://cluster.example.com"
    assert address_of("a:27017,b:27018", None) == "mongodb://a:27017,b:27018"
    assert address_of("cluster.example.com", "localhost:1") == "mongodb://localhost:1"
    assert address_of("x", "mongodb://a,b/?replicaSet=r") == "mongodb://a,b/?replicaSet=r"


@contextmanager
def ferretdb(folder: Path) -> Iterator[str]:
    """Run FerretDB on SQLite, with a user; without it the test is skipped, which is reported."""
    program = shutil.which("ferretdb")
    if program is None:
        pytest.skip("FerretDB isn't on the PATH")
    port = ports.choose()
    options = ["--handler=sqlite", f"--sqlite-url=file:{folder}/", f"--state-dir={folder}", "--telemetry=disable"]
    options += [f"--listen-addr=127.0.0.1:{port}", "--debug-addr=-", "--test-enable-new-auth"]
    options += ["--setup-database=bees", "--setup-username=reader", "--setup-password=secret"]
    with Popen([program, *options], stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            yield f"mongodb://127.0.0.1:{port}/?authSource=bees"
        finally:
            process.kill()


def test_ferretdb_lets_users_in_and_its_documents_are_read(tmp_path: Path) -> None:
    with ferretdb(tmp_path) as address:
        client: MongoClient[dict[str, Any]] = MongoClient(address, username="reader", password="secret")

        def answers() -> bool:
            try:
                client.admin.command("ping")
            except Exception:  # noqa: BLE001 (it isn't up yet, in one of many ways)
                return False
            return True

        eventually(answers)
        hives = client["bees"]["hives"]
        hives.insert_many(documents(2000))
        saved, reader = Saved(), reader_of(address, user="reader", password="secret")
        reader.seek({}, {})
        found = round_of(reader, saved)
        hives.insert_one({"n": 2000, "at": BEGIN + timedelta(days=1)})
        found += round_of(reader, saved)
        assert Counter(found) == Counter(range(2001))
        reader.close()
        wrong = reader_of(address, user="reader", password="wrong password")
        with pytest.raises(UnavailableError, match="correct the user's name or password") as caught:
            wrong.peek(1)
        assert "wrong password" not in str(caught.value)
        wrong.close()
        client.close()
