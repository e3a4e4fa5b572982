# mypy: disable-error-code="arg-type, list-item"

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from caraway.connectors import Kafka, Webhook, source
from caraway.datasets import Count, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.lib import inputs
from caraway.testing import MockClient
from tests.unit.testing.shop import committed

__owner__ = "a@x.co"
AT = datetime(2026, 1, 1, tzinfo=UTC)
clicks = Webhook(name="web").endpoint("clicks")


@pytest.mark.spec("connectors:2.9:6")
def test_an_endpoint_that_a_dataset_names_twice_gives_each_record_once() -> None:
    @source(clicks, disorder="1d", cdc="append")
    @source(clicks, disorder="2d", cdc="append")
    @dataset
    class Clicks:
        user: int
        at: datetime

    @dataset(index=True)
    class Counts:
        user: int = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Clicks)
        def count(cls: Any, clicks: Any) -> Any:
            return clicks.groupby("user").aggregate(n=Count(window=Continuous("forever")))

    client = committed([Clicks, Counts])
    client.log("web", "clicks", pd.DataFrame({"user": [1], "at": [AT]}))
    found, _ = client.lookup(Counts, pd.DataFrame({"user": [1]}), fields=["n"])
    assert list(found) == [1]


def test_one_name_for_two_systems_warns() -> None:
    def events(servers: str) -> Any:
        kafka = Kafka(name="bus", bootstrap_servers=servers, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
        return kafka.topic("events")

    @source(events("a:9092"), disorder="1d", cdc="append")
    @source(events("b:9092"), disorder="1d", cdc="append")
    @dataset
    class Events:
        user: int
        at: datetime

    with pytest.warns(UserWarning, match="Kafka bus has other settings"):
        MockClient().commit("two", datasets=[Events])


def test_rows_further_ahead_than_a_source_allows_are_refused() -> None:
    @source(clicks, disorder="1d", cdc="append", max_future="5m")
    @dataset
    class Clicks:
        user: int
        at: datetime

    client = committed([Clicks])
    now = datetime.now(UTC)
    client.log("web", "clicks", pd.DataFrame({"user": [1], "at": [now + timedelta(minutes=4)]}))
    with pytest.raises(ValueError, match=r"field at, row 1: .* is more than 5m \(max_future\) ahead of the clock"):
        client.log("web", "clicks", pd.DataFrame({"user": [2, 3], "at": [now, now + timedelta(hours=1)]}))
    assert list(client.get_dataset_df("Clicks")["user"]) == [1]
