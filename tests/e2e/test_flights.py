"""Days of real flights through the whole stack; every value as plain pandas computes it."""

import pandas as pd

from caraway.client import Client
from tests.e2e.conftest import World


def test_the_served_values_agree_with_the_oracle(world: World) -> None:
    world.ensure(0)
    agreement = world.agree(0, count=1500)
    assert agreement.disagreements == ()
    assert agreement.total >= 1000 * 37


def test_late_weather_corrects_what_was_served(world: World, client: Client) -> None:
    """Reports that arrive late, for times before a flight that was joined already."""
    due = pd.Timestamp("2013-01-02T12:00:00Z")
    flight = world.piece(0)["schedule"].iloc[[0]].assign(flight_id="~late", origin="~L", due=due)
    keys, times = pd.DataFrame({"flight_id": ["~late"]}), pd.Series([due])

    def wind() -> float | None:
        served = client.lookup("FlightConditions", keys, timestamps=times)[0]["wind"].tolist()[0]
        return None if served is pd.NA else float(served)

    client.log("flights", "schedule", flight)
    world.wait_for(lambda: client.lookup("FlightConditions", keys)[1].tolist() == [True])
    assert wind() is None
    report = world.piece(0)["weather"].iloc[[0]].assign(airport="~L")
    for minutes, speed in [(-7 * 60, 1.0), (-60, 2.0), (-30, 3.0), (-90, 4.0), (-30, 5.0), (1, 6.0)]:
        client.log("flights", "weather", report.assign(measured=due + pd.Timedelta(minutes=minutes), wind=speed))
        # Too old; the first that fits; a newer one; an older one; the same time again; after the flight.
        expected = {-60: 2.0, -30: speed}.get(minutes)
        if expected is not None:
            world.wait_for(lambda expected=expected: wind() == expected)  # type: ignore[misc]
    assert wind() == 5.0


def test_the_same_commit_again_reuses_everything(world: World, client: Client) -> None:
    answer = client.commit("Flights again", world.flights.datasets, world.flights.featuresets)
    summary = "".join(answer.json()["summary"])
    assert summary.startswith("nothing to change")
    assert "create" not in summary
