"""Erasures downstream: everything that was computed from the rows is as if they had never come, and so is the mock."""


# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, assignment"
# ruff: noqa: ANN202 (definitions as users write them)

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from caraway import dataset, field, pipeline
from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.dataplane.topics.erasure_places import ARCHIVE_FILES, DEAD_LETTERS_PLACE
from caraway.dataplane.topics.positions import TopicEnds
from caraway.datasets import Count, Dataset, LastK, Sum
from caraway.dtypes import Continuous
from caraway.lib import inputs
from caraway.state.database import connect
from caraway.state.erasures import ErasureLog, ErasureRecord
from caraway.testing import MockClient
from tests.integration.archive.archive_process import ArchiveProcess, Duck, tables
from tests.integration.jobs import running_jobs
from tests.integration.server.server_process import ServerProcess, eventually
from tests.timeouts import deadline_in

__owner__ = "privacy@example.com"

HOOK = Webhook(name="privacy")
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def definitions(version: int) -> list[Dataset]:
    """Return the datasets. Tests share a broker, so each has a version of its own, and with it topics of its own."""

    @source(HOOK.endpoint("payments"), disorder="14d", cdc="append")
    @dataset(version=version)
    class Payments:
        person: str = field(erase_key=True)
        shop: str
        cents: int
        at: datetime

    @source(HOOK.endpoint("people"), disorder="14d", cdc="upsert")
    @dataset(index=True, version=version)
    class People:
        number: int = field(key=True)
        mail: str = field(erase_key=True)
        at: datetime

    @dataset(index=True, version=version)
    class ByShop:
        shop: str = field(key=True)
        payments: int
        cents: int
        last: list[str]
        at: datetime

        @pipeline
        @inputs(Payments)
        def add(cls, payments: Dataset):
            return payments.groupby("shop").aggregate(
                payments=Count(window=Continuous("forever")),
                cents=Sum(of="cents", window=Continuous("forever")),
                last=LastK(of="person", limit=3, dedup=False, window=Continuous("forever")),
            )

    return [Payments, People, ByShop]


@pytest.fixture(autouse=True)
def _jobs(server: ServerProcess, spark: SparkSession) -> Iterator[None]:
    with running_jobs(server.settings, spark):
        yield


PRIVATE = "private-person-17"
PEOPLE = [PRIVATE, "bob", "eve"]


def payments(first: int, count: int) -> pd.DataFrame:
    numbers = range(first, first + count)
    return pd.DataFrame(
        {
            "person": [PEOPLE[number % 3] for number in numbers],
            "shop": [f"s{number % 2}" for number in numbers],
            "cents": [1 << (number % 20) for number in numbers],
            "at": [BEGIN + timedelta(minutes=number) for number in numbers],
        }
    )


def people(*rows: tuple[int, str, int]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "number": [row[0] for row in rows],
            "mail": [row[1] for row in rows],
            "at": [BEGIN + timedelta(minutes=row[2]) for row in rows],
        }
    )


def shown(client: Client) -> str:
    """Return what the two indexes have, as text, since missing values aren't equal to themselves."""
    shops: Any
    mails: Any
    shops, _ = client.lookup("ByShop", keys=pd.DataFrame({"shop": ["s0", "s1"]}), fields=["payments", "cents", "last"])
    mails, found = client.lookup("People", keys=pd.DataFrame({"number": [1, 2, 3]}), fields=["mail"])
    rows = [[str(value) for value in row.values()] for row in shops.to_dict("records")]
    return f"{rows} {[mail if there else None for mail, there in zip(mails.tolist(), found.tolist(), strict=True)]}"


def fill(client: Client, version: int) -> None:
    client.commit("privacy", datasets=definitions(version))
    client.log("privacy", "payments", payments(0, 60))
    client.log("privacy", "people", people((1, "old@x", 0), (2, "two@x", 0), (3, "new@x", 1), (1, "new@x", 5)))


def erase(client: Client) -> None:
    assert client.erase("Payments", pd.DataFrame({"person": [PRIVATE]})).status_code == 200
    assert client.erase("People", [{"mail": "new@x"}]).status_code == 200


def log_more(client: Client) -> None:
    client.log("privacy", "payments", payments(60, 30))
    client.log("privacy", "people", people((2, "new@x", 9), (3, "three@x", 9)))


@pytest.mark.full(reason="a minute; archive/test_surface.py erases a key, and so do unit tests of index and archive")
def test_everything_is_as_if_the_rows_had_never_come(
    server: ServerProcess, archive_of: Callable[..., ArchiveProcess]
) -> None:
    kafka = str(server.settings.kafka.bootstrap_servers)
    archive = archive_of("archive", replaced_hours=0)
    mock = MockClient()

    def agree(client: Client) -> None:
        expected = shown(mock)
        eventually(lambda: shown(client) == expected, lambda: f"{shown(client)} {expected}\n{server.said()}")

    with closing(Client(str(server.settings.server.url))) as client:
        fill(mock, 1)
        fill(client, 1)
        agree(client)
        refused = server.http.post("/dataset/Payments/erase", json={"erase_keys": [{"person": PRIVATE}]})
        assert (refused.status_code, "the archive has no table" in refused.text) == (409, True)
        with pytest.raises(Exception, match="is no key, so its rows can be erased only together"):
            client.erase("Payments", pd.DataFrame({"person": [PRIVATE]}), downstream=False)
        archive.start()
        eventually(lambda: len(tables(server.settings, "Payments")) == 1, archive.said)
        before = history(server)
        client.clone_branch("copy", "main")
        client.checkout("main")
        erase(mock)
        eventually(lambda: _erased(client), lambda: server.said() + archive.said())
        agree(client)
        log_more(mock)
        log_more(client)
        agree(client)
        # The first rows are on no topic any more, but the record of the erasure is on each, for indexes built later.
        ends = TopicEnds(kafka)
        for name in ("Payments", "People"):
            topic = server.topic(name)

            def is_cut(topic: str = topic) -> bool:
                (first,) = ends.beginnings([topic])[topic].values()
                return first > 0

            eventually(is_cut, archive.said)

        def done() -> bool:
            answers = [server.http.get(f"/dataset/{name}/erasures").json() for name in ("Payments", "People")]
            return all(erasure["waits_for"] == [] for answer in answers for erasure in answer["erasures"])

        eventually(done, lambda: f"{server.http.get('/dataset/Payments/erasures').text}\n{archive.said()}")
        with closing(Duck()) as duck:
            (table,) = tables(server.settings, "Payments")
            eventually(lambda: duck.ask("SELECT count(*) FROM {table}", table) == (60,), archive.said)
            assert duck.ask("SELECT count(*) FROM {table} WHERE person NOT IN ('bob', 'eve')", table) == (0,)
        assert PRIVATE.encode() not in b"".join(path.read_bytes() for path in table.rglob("*") if path.is_file())
        # The commits of both branches were made again, and neither these nor a rollback bring the rows back.
        after = history(server)
        assert len(after) > len(before)
        client.checkout("copy")
        agree(client)
        client.checkout("main")
        answer = server.http.post("/branch/rollback", json={"commit_id": before[0]})
        assert answer.status_code == 200, answer.text
        agree(client)


@pytest.mark.full(reason="kills and starts take two minutes; the test above has all steps")
def test_kills_between_all_steps_lose_nothing(
    server: ServerProcess, archive_of: Callable[..., ArchiveProcess], postgres: str
) -> None:
    archive = archive_of("archive", replaced_hours=0)
    mock = MockClient()
    database = connect(postgres)
    log = ErasureLog(database)
    branch = "killed"

    def records() -> list[ErasureRecord]:
        return [record for name in ("Payments", "People") for record in log.of(name, branch, limit=10)]

    def is_done() -> bool:
        found = records()
        return len(found) == 2 and all(
            record.left(DEAD_LETTERS_PLACE) and record.left(ARCHIVE_FILES) for record in found
        )

    with ExitStack() as open_things:
        open_things.callback(database.dispose)
        client = open_things.enter_context(closing(Client(str(server.settings.server.url), branch=branch)))
        client.init_branch(branch)
        archive.start()
        for each in (mock, client):
            fill(each, 2)
        erase(mock)
        eventually(lambda: _erased(client), lambda: server.said() + archive.said())
        kills: list[int] = []
        known = 0
        deadline = deadline_in(300)
        # The place that an erasure reaches is written at the end of a step. So each kill comes soon after such an end:
        # the next step has begun, or is about to.
        while not is_done():
            assert time.monotonic() < deadline, (records(), server.said(), archive.said())
            reached = sum(len(record.places) for record in records())
            if reached > known and len(kills) < 8:
                known = reached
                kills.append(reached)
                if len(kills) % 2:
                    archive.kill()
                    archive.start()
                else:
                    server.kill()
                    server.start()
        assert len(kills) >= 5
        log_more(mock)
        log_more(client)
        expected = shown(mock)
        eventually(lambda: shown(client) == expected, lambda: f"{shown(client)} {expected}\n{server.said()}")


def history(server: ServerProcess) -> list[str]:
    """Return the commits of the main branch, the newest first."""
    return [commit["id"] for commit in server.http.get("/branch/log").json()["commits"]]


def _erased(client: Client) -> bool:
    """Erase once the archive has tables of both topics; return whether that was so."""
    try:
        erase(client)
    except Exception as error:
        if "the archive has no table" not in str(error):
            raise
        return False
    return True
