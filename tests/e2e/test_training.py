"""The worked example of training on a real stack: training sets and charts have the values that queries serve."""

import pandas as pd

import caraway
from caraway.client import Client
from examples.training import flights
from tests.e2e.conftest import World
from tests.timeouts import scaled

HOUR = pd.Timedelta("1h")
WAIT_SECONDS = 240.0


def test_a_training_set_has_what_queries_serve(world: World, client: Client) -> None:
    world.ensure(0)
    client.wait(timeout=scaled(WAIT_SECONDS))
    rows = flights.labelled(world.piece(0), HOUR)
    served = client.query(flights.INPUTS, flights.OUTPUTS, rows, timestamps=rows[flights.AT])
    found = client.training_set(flights.INPUTS, flights.OUTPUTS, flights.AT, rows, progress=False)
    assert (len(found), found.failed) == (len(rows), 0)
    trained = found.to_pandas()
    assert flights.different(served, trained) == []
    assert trained["late"].tolist() == rows["late"].tolist()
    # The rows have a history that can differ.
    assert (served["Origin.departures_1h"] > 0).sum() > 1000
    assert served["Aircraft.last_delay"].nunique() > 50
    # Arrays for a loop that trains have the same numbers, whatever the batches.
    batches = list(found.arrays(["Origin.mean_delay_1d", "late"], rows=100))
    assert [value for batch in batches for value in batch["late"]] == rows["late"].tolist()
    means = [value for batch in batches for value in batch["Origin.mean_delay_1d"]]
    assert means == served["Origin.mean_delay_1d"].tolist()


def test_a_history_has_what_queries_serve(world: World, client: Client) -> None:
    world.ensure(0)
    client.wait(timeout=scaled(WAIT_SECONDS))
    begin, end = pd.Timestamp("2013-01-01T12:00Z"), pd.Timestamp("2013-01-03T06:00Z")
    history = caraway.feature_history(["Origin"], {"Flight.origin": "JFK"}, begin, end, points=200, client=client)
    asked = pd.DataFrame({"Flight.origin": ["JFK"] * len(history)})
    served = client.query(["Flight.origin"], list(history.columns), asked, timestamps=pd.Series(history.index))
    assert (len(history.columns), history["Origin.mean_delay_1h"].nunique() > 50) == (12, True)
    assert history["Origin.max_delay_1h"].tolist() == served["Origin.max_delay_1h"].tolist()
    floats = [name for name in history.columns if "mean" in name or "stddev" in name]
    assert flights.different(served[floats].astype("Float64"), history[floats].reset_index(drop=True)) == []
