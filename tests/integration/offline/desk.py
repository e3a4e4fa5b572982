"""A branch with the shop's data, and offline queries as a desk makes them."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import httpx2
import pandas as pd
import psutil
import pyarrow as pa

from caraway.client import Client
from caraway.process.children.forking import name_of
from caraway.testing import MockClient
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.offline.shop import asked, definitions, logged
from tests.integration.server.server_process import ServerProcess, eventually
from tests.tls import TLS


class Shop:
    """A branch of a server with the shop's datasets, and a mock client with the same."""

    def __init__(self, server: ServerProcess) -> None:
        # Tests share a broker, so their topics need different names.
        version = int.from_bytes(secrets.token_bytes(3))
        self.server = server
        self.datasets, self.featuresets = definitions(version)
        self.buyer, self.friend = self.featuresets
        self.client, self.mock = Client(str(server.settings.server.url)), MockClient()
        self.client.init_branch(f"shop-{version}")
        self.http = httpx2.Client(
            base_url=server.http.base_url,
            headers={"X-Caraway-Branch": self.client.branch()},
            timeout=server.http.timeout,
            verify=TLS,
        )
        for client in (self.client, self.mock):
            client.commit("shop", datasets=self.datasets, featuresets=self.featuresets)

    def close(self) -> None:
        self.client.close()
        self.http.close()

    def log(self, part: slice = slice(None)) -> None:
        """Log the rows of the shop, or a part of them."""
        for endpoint, frame in logged().items():
            for client in (self.client, self.mock):
                client.log("shop", endpoint, frame.iloc[part])
        self.client.wait()

    def begin(self, frame: pd.DataFrame, outputs: Sequence[Any] = (), **more: Any) -> str:
        found = self.client.query_offline([self.buyer.user], [*outputs] or [self.buyer], "at", frame, **more)
        assert found["status"] in {"waiting", "running", "succeeded"}
        return str(found["request_id"])

    def ask(self, body: dict[str, Any]) -> str:
        """Begin a query by its JSON."""
        answer = self.http.post("/query_offline", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["request_id"])

    def status(self, request_id: str) -> dict[str, Any]:
        return dict(self.client.track_offline_query(request_id))

    def finished(self, request_id: str) -> dict[str, Any]:
        eventually(lambda: self.status(request_id)["status"] not in {"waiting", "running"}, self.server.said)
        return self.status(request_id)

    def result(self, request_id: str) -> pa.Table:
        """Return the result of a query that must succeed."""
        found = self.finished(request_id)
        assert found["status"] == "succeeded", (found, self.server.said())
        return self.client.offline_result(request_id).to_arrow()


def some_fail(rows: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return rows and a query for them: row 3 fails by its user, row 17 by its time, the last one in a function."""
    frame = asked(rows)
    frame["Buyer.user"] = frame["Buyer.user"].astype(object)
    frame["at"] = frame["at"].map(lambda at: at.isoformat())
    frame["Buyer.age"] = 30
    frame.loc[3, "Buyer.user"] = "nobody"
    frame.loc[17, "at"] = "yesterday"
    frame.loc[rows - 1, "Buyer.age"] = 77
    body = {
        "input_features": ["Buyer.user", "Buyer.age"],
        "output_features": ["Buyer.n", "Buyer.per_year", "Buyer.last"],
        "input": {"Pandas": {name: frame[name].tolist() for name in frame}},
        "timestamp_column": "at",
    }
    return frame, body


def processes_of(server: ServerProcess, program: str) -> list[psutil.Process]:
    """Return the processes of a server that run a program."""
    found = []
    for process in psutil.Process(server.pid).children(recursive=True):
        try:
            if program == process.name() or program in process.cmdline():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def queries_of(server: ServerProcess) -> list[psutil.Process]:
    """Return the processes of offline queries."""
    return processes_of(server, name_of("caraway.offline"))


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    for name in expected.columns:
        one, other = ([_plain(value) for value in frame[name].tolist()] for frame in (found, expected))
        assert one == other, name


def _plain(value: Any) -> Any:
    """Return a value of either frame: None for all that stands for null, a list for an array."""
    if hasattr(value, "__len__") and not isinstance(value, str):
        return list(value)
    return None if pd.isna(value) else value


@contextmanager
def partly_archived(server: ServerProcess, archive_of: Callable[[str], ArchiveProcess]) -> Iterator[Shop]:
    """Yield a branch whose first rows are in the tables of the archive, and the others on the topics only."""
    with closing(Shop(server)) as shop:
        shop.log(slice(0, 250))
        archive = archive_of("archive")
        archive.start()
        eventually(lambda: _archived(shop), archive.said)
        assert archive.stop() == 0
        shop.log(slice(250, None))
        yield shop


def _archived(shop: Shop) -> bool:
    return all(table["messages"] == 0 for table in shop.http.get("/archive").json()["tables"])
