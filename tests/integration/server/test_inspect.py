"""Tests of rows, properties and lineage of a branch: a real server shows what the mock client has."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from collections.abc import Hashable, Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from caraway import Average, Client, Count, connectors, dataset, field, meta, pipeline
from caraway.dtypes import Continuous, Hopping, Window
from caraway.errors import RemoteError
from caraway.lib.params import inputs
from caraway.testing import MockClient
from tests.integration.jobs import running_jobs
from tests.integration.server.server_process import ServerProcess, eventually

HOOK = connectors.Webhook(name="depot")
BRANCH = "inspected"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@meta(owner="a@b.co")
@connectors.source(HOOK.endpoint("parcels"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Parcels:
    parcel: str = field(key=True, erase_key=True)
    grams: int
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@connectors.source(HOOK.endpoint("scans"), disorder="1h", cdc="append")
@dataset
class Scans:
    parcel: str
    grams: int
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@dataset(index=True)
class Weights:
    parcel: str = field(key=True)
    mean: float
    count: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Scans)
    def weigh(cls, scans):
        forever = Continuous("forever")
        return scans.groupby("parcel").aggregate(
            mean=Average(of="grams", window=forever, default=0.0), count=Count(window=forever)
        )


@meta(owner="a@b.co")
@dataset(index=True)
class Hours:
    parcel: str = field(key=True)
    window: Window = field(key=True)
    count: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Scans)
    def by_hour(cls, scans):
        return scans.groupby("parcel", window=Hopping("1h", "1h")).aggregate(count=Count())


DATASETS = [Parcels, Scans, Weights, Hours]


def logged(client: Client) -> None:
    parcels = pd.DataFrame(
        {"parcel": ["a", "b", "a"], "grams": [1, 2, 3], "at": pd.date_range(NOON, periods=3, freq="1min")}
    )
    scans = pd.DataFrame(
        {"parcel": ["a", "b"] * 20, "grams": range(40), "at": pd.date_range(NOON, periods=40, freq="10min")}
    )
    client.log("depot", "parcels", parcels)
    client.log("depot", "scans", scans)


@pytest.fixture(scope="module")
def branch(server: ServerProcess, spark: SparkSession) -> Iterator[Client]:
    with running_jobs(server.settings, spark), Client(str(server.settings.server.url), branch=BRANCH) as client:
        client.init_branch(BRANCH)
        client.commit("parcels", datasets=DATASETS)
        logged(client)
        client.wait()
        yield client
        client.delete_branch(BRANCH)


@pytest.fixture(scope="module")
def mock() -> MockClient:
    client = MockClient()
    client.commit("parcels", datasets=DATASETS)
    logged(client)
    return client


def rows(frame: pd.DataFrame) -> list[dict[Hashable, Any]]:
    found = frame.assign(at=pd.to_datetime(frame["at"], utc=True)).astype(object).to_dict("records")
    return sorted(found, key=repr)


@pytest.mark.parametrize("name", ["Parcels", "Scans"])
def test_all_rows_are_those_of_the_mock(branch: Client, mock: MockClient, name: str) -> None:
    assert rows(branch.inspect(name, n=500)) == rows(mock.get_dataset_df(name))


def test_the_newest_rows_come_first(branch: Client) -> None:
    assert branch.inspect(Scans, n=3)["grams"].tolist() == [39, 38, 37]
    assert branch.inspect("Parcels", n=1)["grams"].tolist() == [3]


def test_the_rows_of_an_aggregation_are_those_of_the_keys_that_changed(branch: Client) -> None:
    found = branch.inspect("Weights").set_index("parcel")
    assert found["mean"].to_dict() == {"a": 19.0, "b": 20.0}
    assert found["count"].to_dict() == {"a": 20, "b": 20}


def test_the_rows_of_windows_are_those_that_are_closed(branch: Client) -> None:
    found = branch.inspect("Hours", n=20)
    assert set(found["parcel"]) == {"a", "b"}
    assert set(found["count"]) == {3}
    assert len(found) > 2


def test_erased_keys_are_not_shown(branch: Client) -> None:
    late = pd.DataFrame({"parcel": ["private"], "grams": [4], "at": [NOON]})
    branch.log("depot", "parcels", late)
    assert "private" in branch.inspect(Parcels, n=500)["parcel"].tolist()
    branch.erase(Parcels, pd.DataFrame({"parcel": ["private"]}), downstream=False)
    eventually(lambda: "private" not in branch.inspect(Parcels, n=500)["parcel"].tolist())


@pytest.mark.spec("featuresets:6:13", "featuresets:6:14")
def test_lineage_and_properties_are_those_of_the_mock(branch: Client, mock: MockClient) -> None:
    assert branch.lineage() == mock.lineage()
    moving = {"rows_ingested", "last_processed", "last_updated", "backlog"}

    def still(found: dict[str, Any]) -> list[dict[str, Any]]:
        return [{name: value for name, value in item.items() if name not in moving} for item in found["datasets"]]

    assert still(branch.xray()) == still(mock.xray())
    (parcels,) = branch.xray("Parcels")["datasets"]
    assert (parcels["rows_ingested"] >= 3, parcels["backlog"]) == (True, 0)
    with pytest.raises(RemoteError, match="Parcelz"):
        branch.xray("Parcelz")
