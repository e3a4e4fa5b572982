"""Fixtures: a server with an archive for all tests of a file, and a watch that tests run pass by pass."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pandas as pd
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from caraway.client import Client
from caraway.compute.extractors.pool import FunctionPool
from caraway.dataplane.archive.served_log import SERVED
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.offline.monitoring.skew.watch import Parts, SkewWatch
from caraway.process.confinement.configured import confinement_of
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.monitoring import SkewSettings
from caraway.process.settings.settings import Settings
from caraway.state.database import connect
from caraway.state.findings import Finding
from caraway.state.secrets import SecretStore
from caraway.state.skew import SkewStore
from tests.integration.archive.archive_process import ArchiveProcess, served_rows
from tests.integration.jobs import running_jobs
from tests.integration.server.server_process import ServerProcess, eventually, running_server
from tests.integration.skew.till import definitions
from tests.tls import TLS

# Every row is computed again, at once.
ALL = SkewSettings(enabled=False, delay_seconds=0.0, rows_per_minute=1e9)


class Shop:
    """A branch of a server whose answers are logged and archived, and a watch of them."""

    def __init__(self, server: ServerProcess, archive: ArchiveProcess, branch: str = "main") -> None:
        self.server, self.archive, self.branch = server, archive, branch
        self.client = Client(str(server.settings.server.url))
        if branch != self.client.branch():
            self.client.init_branch(branch)
        self.http = httpx2.Client(
            base_url=server.http.base_url, headers={"X-Caraway-Branch": branch}, timeout=server.http.timeout, verify=TLS
        )
        self.version = int.from_bytes(secrets.token_bytes(3))
        self.till: Any = None
        self.database = connect(str(server.settings.postgres.url))
        self.store = SkewStore(self.database)
        self.settings: Settings = server.settings.model_copy(update={"skew": ALL})
        self._functions = FunctionPool(1, 60.0, confinement=confinement_of(self.settings))

    def close(self) -> None:
        self._functions.stop()
        self.database.dispose()
        self.client.close()
        self.http.close()

    def commit(self, version: int | None = None, *, factor: int = 2) -> list[Any]:
        datasets, (self.till,) = definitions(version or self.version, factor=factor)
        self.client.commit("till", datasets=datasets, featuresets=[self.till])
        self.client.wait()
        return datasets

    def pay(self, user: int, price: float, at: datetime, item: str = "x") -> datetime:
        """Log a payment, wait until it is served, and return the time at which it had just been accepted."""
        row = {"user": [user], "price": [price], "item": [item], "at": [at]}
        self.client.log("tills", "payments", pd.DataFrame(row))
        accepted = datetime.now(UTC)
        self.client.wait()
        return accepted

    def pay_often(
        self, seed: int, rows: int = 60, users: int = 5, apart_s: float = 7.0, *, first_user: int = 0
    ) -> None:
        now = datetime.now(UTC)
        frame = pd.DataFrame(
            {
                "user": [first_user + n % users for n in range(rows)],
                "price": [round(0.1 + (n * seed) % 97 / 7, 3) for n in range(rows)],
                "item": [f"i{n % 4}" for n in range(rows)],
                "at": [now - timedelta(seconds=apart_s * n) for n in range(rows)],
            }
        )
        people = pd.DataFrame(
            {
                "user": range(first_user, first_user + users),
                "city": [f"c{n}" for n in range(users)],
                "age": pd.array([None if n == 1 else 20 + n for n in range(users)], dtype="Int64"),
                "at": [now - timedelta(days=1)] * users,
            }
        )
        self.client.log("tills", "payments", frame)
        self.client.log("tills", "payers", people)
        self.client.wait()

    def ask(self, outputs: list[Any], users: list[int], **more: Any) -> pd.DataFrame:
        rows = pd.DataFrame({"Till.user": users})
        found: pd.DataFrame = self.client.query([self.till.user], outputs, rows, log=True, **more)
        return found

    def plant(self, at: datetime, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Write a row into the log, as if a server had answered so."""
        (branch,) = [b for b in self.http.get("/branch/list").json()["branches"] if b["name"] == self.branch]
        at_us = round(at.timestamp() * 1e6)
        record = {
            "format": 1,
            "query": secrets.token_hex(8),
            "served_us": at_us + 500,
            "branch": self.branch,
            "commit": branch["serving"],
            "workflow": "planted",
            "rows": [0],
            "at_us": at_us,
            "inputs": {name: [value] for name, value in inputs.items()},
            "outputs": {name: [value] for name, value in outputs.items()},
        }
        producer = Producer({"bootstrap.servers": str(self.settings.kafka.bootstrap_servers)})
        producer.produce(SERVED, orjson.dumps(record))
        assert producer.flush(30) == 0

    def rows(self) -> int:
        """Return how many rows of this branch are archived."""
        frame = served_rows(self.server.settings)
        known = {entry["id"] for entry in self.http.get("/branch/log").json()["commits"]}
        return 0 if frame.is_empty() else len(frame.filter(frame["commit"].is_in(known)))

    def watch(self) -> SkewWatch:
        keyring = open_keyring(self.settings.key_file)
        parts = Parts(self.database, ErasedKeys(keyring.mac_keys), self._functions, SecretStore(self.database, keyring))
        return SkewWatch(self.settings, parts)

    def compared(self, rows: int) -> dict[str, dict[Finding, int]]:
        """Wait until so many rows are archived, compare all of them, and return the findings of all time."""
        eventually(lambda: self.rows() == rows, self.archive.said)
        watch = self.watch()
        while watch.run_once():
            pass
        return self.found()

    def found(self) -> dict[str, dict[Finding, int]]:
        found: dict[str, dict[Finding, int]] = {}
        for (branch, feature, finding), count in self.store.totals().items():
            if branch == self.branch:
                found.setdefault(feature.removeprefix("Till."), {})[finding] = count
        return found


@contextmanager
def archived_server(
    folder: Path, spark: SparkSession, **settings: Any
) -> Iterator[tuple[ServerProcess, ArchiveProcess]]:
    """Run a server with settings of `ServerProcess`, its jobs, and an archive of its topics."""
    with running_server(folder / "server", **settings) as server, running_jobs(server.settings, spark):
        archive = ArchiveProcess(server.settings, seconds=0.1)
        archive.start()
        yield server, archive
        archive.kill()


@pytest.fixture(scope="module")
def deployment(
    kafka: str, module_postgres: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ArchiveProcess]]:
    with archived_server(tmp_path_factory.mktemp("skew"), spark, kafka=kafka, postgres=module_postgres) as running:
        yield running


@pytest.fixture
def shop(deployment: tuple[ServerProcess, ArchiveProcess]) -> Iterator[Shop]:
    """Yield a branch of the test's own."""
    with closing(Shop(*deployment, branch=f"shop-{secrets.token_hex(4)}")) as made:
        yield made
