"""Loads of indexes through a real session of Spark: the values are those of the followed index and of offline reads."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from caraway.compute.query.model import Rows
from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.records.removal import known_erasures
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.graph.plan.model import IndexPlan
from caraway.offline.loads.manifest import LoadManifest, is_loadable, read_manifest
from caraway.offline.queries.model import LoadRequest, OfflineRequest, QueryStatus, StoredRows, folder_of
from caraway.offline.queries.store import OfflineQueries
from caraway.process.settings.index import IndexSettings
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.offline import OfflineSettings
from caraway.state.database import connect
from caraway.state.plans import Plans
from caraway.state.reader import StateReader
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.index.flow import wait_for
from tests.integration.jobs import running_jobs
from tests.integration.offline.desk import Shop, partly_archived, processes_of, queries_of
from tests.integration.offline.shop import BEGIN, USERS, asked
from tests.integration.server.server_process import ServerProcess, eventually, running_server

SHARDS = 2
OFFLINE = OfflineSettings(spark_driver_memory="512m")


@pytest.fixture(scope="module")
def server(
    kafka: str, module_postgres: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Yield a server with topics of two partitions."""
    folder = tmp_path_factory.mktemp("server")
    settings = KafkaSettings(bootstrap_servers=kafka, partitions=SHARDS)
    with (
        running_server(folder, kafka=settings, postgres=module_postgres, offline=OFFLINE) as process,
        running_jobs(process.settings, spark),
    ):
        yield process


class Loads:
    """Requests of loads, and databases that take their tables."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        settings = shop.server.settings
        assert settings.postgres.url is not None
        self.engine: sa.Engine = connect(settings.postgres.url)
        self.queries = OfflineQueries(self.engine)
        self.objects = ObjectFolder(settings.objects_url)
        begun = shop.begin(asked(1), execution="process")
        shop.result(begun)
        self.commit = self.queries.get(begun).commit
        planned = Plans(StateReader(self.engine)).planned(self.commit)
        self.plans = {plan.dataset: plan for plan in planned.plan.indexes}
        assert all(map(is_loadable, self.plans.values()))

    def ask(self, dataset: str, number: int = 0, shards: int = 1) -> str:
        asset = self.plans[dataset].asset.hex()
        request = OfflineRequest(
            inputs=(),
            outputs=(),
            timestamp_column="",
            rows=StoredRows(""),
            load=LoadRequest(asset=asset, number=number, shards=shards),
        )
        query_id = f"load-{asset}-{number}-of-{shards}"
        self.queries.add(query_id, request, branch="", commit=self.commit, account="", workflow="load")
        return query_id

    def made(self, query_id: str) -> LoadManifest:
        """Return the result of a request, when it is there."""
        eventually(lambda: self.queries.get(query_id).status.is_over, self.shop.server.said)
        query = self.queries.get(query_id)
        assert query.status is QueryStatus.SUCCEEDED, (query.error, self.shop.server.said())
        return read_manifest(self.objects, query_id)

    def load(self, store: IndexStore, dataset: str, query_id: str) -> LoadManifest:
        manifest = self.made(query_id)
        folder = store.begin_load()
        tables = [folder / f"{number}.sst" for number in range(len(manifest.tables))]
        for path, table in zip(tables, manifest.tables, strict=True):
            assert self.objects.fetch(f"{folder_of(query_id)}/{table.name}", path) == table.digest
        store.load(self.plans[dataset].asset, tables, manifest.offsets)
        self.objects.remove_folder(folder_of(query_id))
        self.queries.forget(query_id)
        return manifest

    def follow(self, store: IndexStore, holds: Callable[[int], bool] = lambda _: True) -> None:
        """Have a database follow the topics to their ends."""
        worker = IndexWorker(self.shop.server.settings.kafka.bootstrap_servers or "", store, holds=holds)
        worker.start()
        worker.set_plans(list(self.plans.values()))
        wait_for(lambda: all(s.following and s.lag == 0 for s in worker.positions()), f"{worker.positions()}")
        worker.stop()

    def read(self, store: IndexStore, plan: IndexPlan, rows: pd.DataFrame) -> Rows:
        reader = DatasetReader(IndexReader(store), [plan])
        keys = [(int(user),) for user in rows["Buyer.user"]]
        at_us = [int(at.timestamp() * 1e6) for at in rows["at"]]
        return reader.read(plan.dataset, keys, at_us, [field.name for field in plan.fields])


@pytest.fixture
def loads(shop: Shop) -> Iterator[Loads]:
    made = Loads(shop)
    yield made
    made.engine.dispose()


@pytest.fixture
def shop(server: ServerProcess, archive_of: Callable[[str], ArchiveProcess]) -> Iterator[Shop]:
    """Yield a branch whose first rows are in the tables of the archive, and the others on the topics only."""
    with partly_archived(server, archive_of) as made:
        yield made


@pytest.mark.full(
    reason="Spark starts; index/test_loads.py takes such tables, unit/offline/loads has the law of divisions"
)
def test_a_loaded_index_answers_as_the_followed_one(shop: Shop, loads: Loads, tmp_path: Path) -> None:
    rows = asked(300)
    requests = {dataset: loads.ask(dataset) for dataset in loads.plans}
    with IndexStore(tmp_path / "loaded") as loaded, IndexStore(tmp_path / "followed") as followed:
        loads.follow(followed)
        for dataset, query_id in requests.items():
            manifest = loads.load(loaded, dataset, query_id)
            # Heartbeats have moved the ends of topics meanwhile.
            assert manifest.offsets.keys() == followed.offsets(loads.plans[dataset].asset).keys()
            assert manifest.records > 0
        for plan in loads.plans.values():
            assert repr(loads.read(loaded, plan, rows)) == repr(loads.read(followed, plan, rows)), plan.dataset
        # A list of a branch's queries has none of a load, and nobody can ask for it as for a query.
        listed = shop.http.get("/query_offline/list").json()
        assert "load-" not in str(listed)
        offline = shop.result(shop.begin(rows, [shop.buyer], execution="process")).to_pandas()
        values, found = loads.read(loaded, loads.plans["Spending"], rows)
        names = [field.name for field in loads.plans["Spending"].fields]
        for name in ("n", "total_1h", "mean", "spread", "most"):
            if f"Buyer.{name}" in offline:
                column = values[names.index(name)]
                wanted = offline[f"Buyer.{name}"].tolist()
                assert [v for v, f in zip(column, found, strict=True) if f] == [
                    w for w, f in zip(wanted, found, strict=True) if f
                ], name
        # Records that come later count once.
        shop.client.log("shop", "purchases", _more(40))
        shop.client.wait()
        for store in (loaded, followed):
            loads.follow(store)
        for plan in loads.plans.values():
            assert repr(loads.read(loaded, plan, rows)) == repr(loads.read(followed, plan, rows)), plan.dataset


@pytest.mark.full(reason="Spark starts once more; tests/integration/index/test_loads.py has a shard's load")
def test_a_shard_has_its_partitions_only(loads: Loads, tmp_path: Path) -> None:
    rows = asked(200)
    plan = loads.plans["Spending"]
    requests = [loads.ask("Spending", number, SHARDS) for number in range(SHARDS)]
    records = 0
    for number, query_id in enumerate(requests):
        with IndexStore(tmp_path / f"l{number}") as loaded, IndexStore(tmp_path / f"f{number}") as followed:
            loads.follow(followed, LoadRequest(asset="", number=number, shards=SHARDS).holds)
            manifest = loads.load(loaded, "Spending", query_id)
            assert list(manifest.offsets) == [number]
            records += manifest.records
            assert repr(loads.read(loaded, plan, rows)) == repr(loads.read(followed, plan, rows))
    assert records > 0


@pytest.mark.full(reason="Spark starts once more; the law of divisions has erased keys")
def test_the_tables_have_no_record_of_an_erased_key(shop: Shop, loads: Loads, tmp_path: Path) -> None:
    rows = asked(200)
    shop.client.erase("Users", [{"user": 3}], downstream=False)
    plan = loads.plans["Users"]
    with IndexStore(tmp_path / "loaded") as loaded, IndexStore(tmp_path / "followed") as followed:
        loads.load(loaded, "Users", loads.ask("Users"))
        loads.follow(followed)
        # The database has the key of the erasure only, by which it looks for entries once more.
        assert len(known_erasures(loaded, plan.asset, pending=True)) == 1
        values, found = loads.read(loaded, plan, rows)
        expected, known = loads.read(followed, plan, rows)
        erased = [user == 3 for user in rows["Buyer.user"]]
        assert any(there for there, gone in zip(known, erased, strict=True) if gone)
        assert found == [there and not gone for there, gone in zip(known, erased, strict=True)]
        for column, wanted in zip(values, expected, strict=True):
            assert all(v == w for v, w, there in zip(column, wanted, found, strict=True) if there)


@pytest.mark.full(reason="Spark starts twice; test_a_loaded_index_answers_as_the_followed_one has the rest")
@pytest.mark.parametrize("victim", ["pyspark.daemon", "java", "caraway.offline", "caraway.apps.server"])
def test_a_load_survives_a_kill(server: ServerProcess, loads: Loads, tmp_path: Path, victim: str) -> None:
    rows = asked(200)
    query_id = loads.ask("Spending")
    eventually(lambda: len(processes_of(server, "pyspark.daemon")) >= 2, server.said)
    if victim == "caraway.apps.server":
        server.kill()
        server.start()
    else:
        found = queries_of(server) if victim == "caraway.offline" else processes_of(server, victim)
        os.kill(found[-1].pid, SIGKILL)
    with IndexStore(tmp_path / "loaded") as loaded, IndexStore(tmp_path / "followed") as followed:
        loads.follow(followed)
        loads.load(loaded, "Spending", query_id)
        plan = loads.plans["Spending"]
        assert repr(loads.read(loaded, plan, rows)) == repr(loads.read(followed, plan, rows))


def _more(rows: int, users: int = USERS) -> pd.DataFrame:
    rng = np.random.default_rng(rows)
    return pd.DataFrame(
        {
            "user": rng.integers(0, users, rows),
            "price": pd.array(np.round(rng.lognormal(2, 1, rows), 2), dtype="Float64"),
            "item": [f"i{n % 9}" for n in range(rows)],
            "at": [BEGIN + timedelta(seconds=int(s)) for s in rng.integers(0, 200_000, rows)],
        }
    )


@pytest.mark.full(reason="it takes some hundred thousand rows until an index lags for two seconds")
def test_a_server_loads_an_index_that_it_has_lost(
    kafka: str, postgres: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "server"
    index = IndexSettings(load_records=2_000)
    with (
        running_server(folder, kafka=kafka, postgres=postgres, offline=OFFLINE, index=index) as server,
        running_jobs(server.settings, spark),
        closing(Shop(server)) as shop,
    ):
        frames = [_more(50_000 + number, users=5_000) for number in range(8)]
        for frame in frames:
            shop.client.log("shop", "purchases", frame)
        shop.client.wait()
        every = pd.concat(frames)
        kept = every[every["price"] > 1.0]
        wanted = kept.groupby("user")["price"].agg(["count", "max"])
        for kill in ("is to be loaded by files", "the tables of an index are ready", "was loaded by files"):
            server.kill()
            _remove(folder / "index")
            begun = server.log_file.read_text(errors="replace").count(kill)
            server.start()
            eventually(lambda: server.log_file.read_text(errors="replace").count(kill) > begun, server.said)  # noqa: B023
            server.kill()
            server.start()
        eventually(lambda: all(each["lag"] == 0 for each in _indexes(server)), server.said)
        _answers(shop, wanted)
        shop.client.log("shop", "purchases", (last := _more(1_000, users=5_000)))
        shop.client.wait()
        kept = pd.concat([every, last])
        _answers(shop, kept[kept["price"] > 1.0].groupby("user")["price"].agg(["count", "max"]))


def _answers(shop: Shop, wanted: pd.DataFrame) -> None:
    inputs = pd.DataFrame({"Buyer.user": wanted.index})
    found = shop.client.query([shop.buyer.user], [shop.buyer.n, shop.buyer.most], inputs)
    assert found["Buyer.n"].tolist() == wanted["count"].tolist()
    assert found["Buyer.most"].tolist() == wanted["max"].tolist()


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()


def _indexes(server: ServerProcess) -> list[dict[str, object]]:
    found: list[dict[str, object]] = server.http.get("/status").json()["index"]["indexes"]
    return found
