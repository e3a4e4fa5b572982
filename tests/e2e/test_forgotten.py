"""After an erasure downstream no file of the whole stack has the clear text of the key any more."""

# ruff: noqa: ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, arg-type"

import os
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pandas as pd
import pyarrow.parquet as pq
import pytest

from caraway import F, dataset, featureset, field, meta, pipeline
from caraway.apps.stack.stack import Stack
from caraway.client import Client, find_server
from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, LastK, Sum
from caraway.dtypes import Continuous
from caraway.lib import inputs
from caraway.process.settings.settings import Settings, load_settings
from tests.timeouts import deadline_in
from tests.tls import TLS

HOOK = Webhook(name="forgotten")
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
PERSON, MAIL = "Zebulon-Quirrell-1871", "zq1871@mail.example"


@meta(owner="e2e@example.com")
@source(HOOK.endpoint("payments"), disorder="14d", cdc="append")
@dataset
class Payments:
    person: str = field(erase_key=True)
    shop: str
    cents: int
    at: datetime = field(timestamp=True)


@meta(owner="e2e@example.com")
@source(HOOK.endpoint("shops"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Shops:
    shop: str = field(key=True)
    city: str
    at: datetime = field(timestamp=True)


@meta(owner="e2e@example.com")
@source(HOOK.endpoint("people"), disorder="14d", cdc="upsert")
@dataset(index=True)
class People:
    number: int = field(key=True)
    mail: str = field(erase_key=True)
    at: datetime = field(timestamp=True)


@meta(owner="e2e@example.com")
@dataset(index=True)
class ByPerson:
    person: str = field(key=True)
    payments: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Payments)
    def add(cls, payments: Dataset):
        return payments.groupby("person").aggregate(payments=Count(window=Continuous("forever")))


@meta(owner="e2e@example.com")
@dataset(index=True)
class ByCity:
    """A dataset with a job of its own, whose state and topic have the key."""

    city: str = field(key=True)
    cents: int
    last: list[str]
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Payments, Shops)
    def add(cls, payments: Dataset, shops: Dataset):
        return (
            payments.join(shops, how="inner", on=["shop"])
            .groupby("city")
            .aggregate(
                cents=Sum(of="cents", window=Continuous("forever")),
                last=LastK(of="person", limit=5, dedup=False, window=Continuous("forever")),
            )
        )


@meta(owner="e2e@example.com")
@featureset
class Buyer:
    person: str
    payments: int = F(ByPerson.payments, default=0)


DATASETS = [Payments, Shops, People, ByPerson, ByCity]


def payments(people: list[str], first: int) -> pd.DataFrame:
    numbers = range(len(people))
    return pd.DataFrame(
        {
            "person": people,
            "shop": [f"s{number % 2}" for number in numbers],
            "cents": [1 << (first + number) for number in numbers],
            "at": [BEGIN + timedelta(minutes=first + number) for number in numbers],
        }
    )


def settings_of(folder: Path) -> Settings:
    """Return settings with which everything that waits for some time happens soon."""
    settings = load_settings(folder)
    return settings.model_copy(
        update={
            "archive": settings.archive.model_copy(update={"seconds": 1.0, "replaced_hours": 0}),
            "server": settings.server.model_copy(update={"snapshot_seconds": 5.0}),
        }
    )


def wait_for(happens: Callable[[], bool], explain: Callable[[], object], seconds: float = 300.0) -> None:
    deadline = deadline_in(seconds)
    while not happens():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.2)


def files_with(folder: Path, *texts: str) -> dict[str, list[str]]:
    """Return the files with a text, as UTF-8 or as UTF-16, by the text."""
    needles = {text: (text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be")) for text in texts}
    found: dict[str, list[str]] = {text: [] for text in texts}
    for path in sorted(folder.rglob("*")):
        try:
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            if path.suffix == ".parquet":
                # The columns are compressed by zstd, in which a text can't be found. The other formats keep texts.
                content += str(pq.read_table(path).to_pydict()).encode()
        except FileNotFoundError:
            continue
        for text, forms in needles.items():
            if any(form in content for form in forms):
                found[text].append(str(path.relative_to(folder)))
    return found


@pytest.mark.timeout(900)
@pytest.mark.full(reason="a stack of its own, twice; tests/integration/archive/test_downstream.py has the rest")
def test_no_file_has_an_erased_key(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Stack(settings_of(folder)) as stack:
        headers = {"Authorization": f"Bearer {find_server(stack.url).token}"}
        raw = httpx2.Client(base_url=f"{stack.url}/api/v1", headers=headers, verify=TLS)
        with closing(Client(stack.url)) as client, raw as http:
            client.commit("forgotten", DATASETS, [Buyer])

            def cities() -> list[Any]:
                found: Any
                found, there = client.lookup(ByCity, pd.DataFrame({"city": ["c0", "c1"]}), ["cents", "last"])
                return [[row["cents"], list(row["last"])] for row in found[there.to_numpy(bool)].to_dict("records")]

            shops = pd.DataFrame({"shop": ["s0", "s1"], "city": ["c0", "c1"], "at": [BEGIN, BEGIN]})
            client.log("forgotten", "shops", shops)
            client.log(
                "forgotten", "people", pd.DataFrame({"number": [1, 2], "mail": [MAIL, "b@x"], "at": [BEGIN] * 2})
            )
            client.log("forgotten", "payments", payments([PERSON, "bob", "eve", PERSON], 0))
            refused = {"person": PERSON, "shop": "s0", "cents": "many", "at": "2026-03-01T00:00:00Z"}
            body = {"webhook": "forgotten", "endpoint": "payments", "data": [refused, {**refused, "person": "bob"}]}
            assert http.post("/log", json=body).json()["rejected"] == 2
            wait_for(lambda: cities() == [[5, ["eve", PERSON]], [10, [PERSON, "bob"]]], cities)
            asked = pd.DataFrame({"Buyer.person": [PERSON, "bob"]})
            served = client.query([Buyer.person], [Buyer.payments], asked, log=True, workflow="forgotten")
            assert served["Buyer.payments"].tolist() == [2, 1]
            snapshots = folder / "objects" / "index-snapshots" / "manifests"
            wait_for(lambda: any(snapshots.glob("*.json")), lambda: "no snapshot")
            before = files_with(folder, PERSON, MAIL)
            assert all(len(found) > 1 for found in before.values()), before

            def erase() -> bool:
                asked = [("Payments", {"person": PERSON}), ("People", {"mail": MAIL})]
                answers = [http.post(f"/dataset/{name}/erase", json={"erase_keys": [key]}) for name, key in asked]
                return all(answer.status_code == 200 for answer in answers)

            wait_for(erase, lambda: "the archive has no tables")

            def waits_for() -> list[Any]:
                answers = [http.get(f"/dataset/{name}/erasures").json() for name in ("Payments", "People")]
                return [erasure["waits_for"] for answer in answers for erasure in answer["erasures"]]

            wait_for(lambda: waits_for() == [[], []], waits_for)
            assert cities() == [[4, ["eve"]], [2, ["bob"]]]
            letters = http.get("/dead_letters").json()["dead_letters"]
            rows = [http.get(f"/dead_letters/{letter['id']}").json()["row"] for letter in letters]
            assert [row["person"] for row in rows] == ["bob"]

            def left() -> dict[str, list[str]]:
                # A snapshot that was replaced keeps its files for an hour: this is an hour later.
                for path in (folder / "objects" / "index-snapshots" / "files").glob("*"):
                    os.utime(path, (path.stat().st_atime - 7200, path.stat().st_mtime - 7200))
                return files_with(folder, PERSON, MAIL)

            # The lists of tables of RocksDB have the least and greatest keys of removed tables until the next start.
            def is_gone() -> bool:
                return not [path for found in left().values() for path in found if "/MANIFEST-" not in path]

            wait_for(is_gone, left)
            # Only a suffix tells files that Kafka has yet to delete. The first files of the topics had the rows.
            logs = [path for path in folder.glob("kafka/**/caraway.P*/*.log*") if path.name.startswith("0" * 20)]
            wait_for(lambda: not any(path.exists() for path in logs), lambda: logs)
    with Stack(settings_of(folder)) as stack, closing(Client(stack.url)) as client:
        wait_for(lambda: client.lookup(People, pd.DataFrame({"number": [2]}))[1].tolist() == [True], lambda: "no row")
        assert client.lookup(People, pd.DataFrame({"number": [1]}))[1].tolist() == [False]
    assert files_with(folder, PERSON, MAIL) == {PERSON: [], MAIL: []}
