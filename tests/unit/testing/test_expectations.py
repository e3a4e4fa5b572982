"""Expectations by a mock client: counted over the rows that it has, in the form of a server's answer."""

# mypy: disable-error-code="attr-defined, arg-type, assignment, misc, no-untyped-def"

from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field, pipeline
from caraway.errors import CommitError, InvalidInputError, UnknownEntityError
from caraway.lib import (
    expect_column_values_to_be_between,
    expect_column_values_to_not_be_null,
    expectations,
    inputs,
)
from caraway.testing import MockClient
from caraway.testing import log as log_to_dataset
from tests.unit.testing.shop import committed

__owner__ = "mock@example.com"
HOOK = Webhook(name="hives")


@source(HOOK.endpoint("weighings"), disorder="1d", cdc="append")
@dataset
class Weighings:
    hive: str
    grams: Optional[float]
    at: datetime

    @expectations(version=3)
    def sane(cls: Any) -> Any:
        return [
            expect_column_values_to_not_be_null(str(cls.grams), mostly=0.5),
            expect_column_values_to_be_between("grams", 0, row_condition='hive != "broken"', condition_parser="pandas"),
        ]


@dataset(index=True)
class Heaviest:
    hive: str = field(key=True)
    grams: float
    at: datetime

    @pipeline
    @inputs(Weighings)
    def make(cls: Any, weighings: Any) -> Any:
        return weighings.dropnull("grams").groupby("hive").latest()

    @expectations
    def light(cls: Any) -> Any:
        return [expect_column_values_to_be_between("grams", max_value=50)]


ROWS = pd.DataFrame(
    {
        "hive": ["h1", "h1", "broken", "h2"],
        "grams": [-5.0, 70.0, -7.0, None],
        "at": ["2024-05-01T10:00:00Z", "2024-05-01T12:00:00Z", "2024-05-01T12:01:00Z", "2024-05-01T12:02:00Z"],
    }
)


@pytest.fixture
def client() -> MockClient:
    made = committed([Weighings, Heaviest])
    made.log("hives", "weighings", ROWS)
    return made


def test_rows_are_counted_by_event_time(client: MockClient) -> None:
    present, between, light = client.expectations()
    assert (present["dataset"], present["version"], present["status"]) == ("Weighings", 3, "ok")
    assert present["total"] == {"evaluated": 4, "failed": 1, "rate": 0.75}
    assert between == {
        "dataset": "Weighings",
        "version": 3,
        "expectation": "expect_column_values_to_be_between:grams",
        # The row that failed isn't of the last hour.
        "status": "ok",
        "mostly": 1.0,
        "strict": False,
        "newest_at": "2024-05-01T12:00:00+00:00",
        "total": {"evaluated": 2, "failed": 1, "rate": 0.5},
        "last_hour": {"evaluated": 1, "failed": 0, "rate": 1.0},
        "last_day": {"evaluated": 2, "failed": 1, "rate": 0.5},
        "samples": [{"at": "2024-05-01T10:00:00+00:00", "values": {"grams": -5.0}}],
        "series": [
            {"start": "2024-05-01T10:00:00+00:00", "evaluated": 1, "failed": 1},
            {"start": "2024-05-01T12:00:00+00:00", "evaluated": 1, "failed": 0},
        ],
    }
    assert (light["dataset"], light["status"]) == ("Heaviest", "violated")
    assert light["samples"][0]["values"] == {"hive": "h1", "grams": 70.0}


def test_one_dataset_and_fewer_hours(client: MockClient) -> None:
    (_, between) = client.expectations(Weighings, hours=1, samples=0)
    assert (between["samples"], len(between["series"])) == ([], 1)
    assert client.expectations("Heaviest")[0]["dataset"] == "Heaviest"
    with pytest.raises(UnknownEntityError, match="no dataset 'Bees'"):
        client.expectations("Bees")


def test_without_rows_there_is_no_status() -> None:
    client = committed([Weighings])
    assert {found["status"] for found in client.expectations()} == {"no_data"}
    assert client.expectations()[0]["newest_at"] is None


def test_a_condition_that_does_not_fit_is_refused_by_the_commit() -> None:
    @source(HOOK.endpoint("more"), disorder="1d", cdc="append")
    @dataset
    class More:
        hive: str
        at: datetime

        @expectations
        def odd(cls: Any) -> Any:
            return [expect_column_values_to_not_be_null("hive", row_condition="hive > 3", condition_parser="pandas")]

    with pytest.raises(CommitError, match="row_condition 'hive > 3'"):
        MockClient().commit("more", [More])


@pytest.mark.parametrize("cdc", ["append", "debezium"])
def test_rows_that_a_strict_expectation_refuses_are_not_stored(cdc: str) -> None:
    keyed = cdc == "debezium"

    @source(HOOK.endpoint("apiaries"), disorder="1d", cdc=cdc)
    @dataset(index=keyed)
    class Apiaries:
        name: str = field(key=keyed)
        hives: int
        at: datetime

        @expectations(strict=True)
        def sane(cls: Any) -> Any:
            return [
                expect_column_values_to_be_between("hives", 1, 100),
                expect_column_values_to_be_between("hives", 10, mostly=0.5, strict=False),
            ]

    client = committed([Apiaries])

    def log(*hives: int) -> None:
        rows = [{"name": f"a{n}", "hives": n, "at": "2024-05-01T10:00:00Z"} for n in hives]
        if keyed:
            rows = [{"op": "c", "before": None, "after": row, "ts_ms": 1_700_000_000_000} for row in rows]
        client.log("hives", "apiaries", pd.DataFrame(rows))

    log(5, 20)
    with pytest.raises(InvalidInputError, match=r"dataset Apiaries, row 1, column hives: 0 isn't as expected by .*str"):
        log(7, 0)
    assert sorted(client.get_dataset_df("Apiaries")["hives"]) == [5, 20]
    assert [(found["strict"], found["total"]["failed"]) for found in client.expectations()] == [(True, 0), (False, 1)]
    with pytest.raises(InvalidInputError, match="row 0, column hives: 101"):
        log_to_dataset(Apiaries, pd.DataFrame({"name": ["b"], "hives": [101], "at": ["2024-05-01"]}))
