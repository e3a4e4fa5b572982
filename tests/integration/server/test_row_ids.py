"""Events that are delivered twice to a source with `id` count once, through a server as in the mock."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from caraway.client import Client
from caraway.testing import MockClient
from tests.integration.server.server_process import ServerProcess
from tests.unit.datasets.test_row_ids import payments, totals

SHOPS = pd.DataFrame({"shop": ["north", "south"]})
START = pd.Timestamp("2024-05-01", tz="UTC")


def deliveries() -> list[pd.DataFrame]:
    """Return some deliveries of the same payments in other orders; the first has two of them twice."""
    frame = pd.DataFrame(
        {
            "number": [f"p{n // 2}" for n in range(40)],
            "shop": ["north", "south"] * 20,
            "amount": range(40),
            "at": START + pd.to_timedelta(range(40), unit="min"),
        }
    )
    return [pd.concat([frame, frame.iloc[:2]], ignore_index=True), frame.sample(frac=1.0, random_state=1)]


@pytest.mark.usefixtures("jobs")
def test_what_is_delivered_twice_counts_once(own_server: Callable[..., ServerProcess]) -> None:
    made = payments(id=["shop", "number"])
    definitions: list[Any] = [made, totals(made)]
    server, mock = own_server(), MockClient()
    mock.commit("payments", datasets=definitions)
    with Client(str(server.settings.server.url)) as client:
        client.commit("payments", datasets=definitions)
        for frame in deliveries():
            mock.log("web", "payments", frame)
            client.log("web", "payments", frame)
        client.wait()
        served, found = client.lookup("Totals", SHOPS)
        wanted, _ = mock.lookup("Totals", SHOPS)
    assert found.tolist() == [True, True]
    assert served[["paid", "payments"]].to_numpy().tolist() == wanted[["paid", "payments"]].to_numpy().tolist()
    assert served["payments"].tolist() == [20, 20]
