"""The worked example of training: nothing of the future gets into a row, a model or a week, and served is trained."""

import runpy
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

import examples.training
from caraway.testing import MockClient
from examples.flights import data
from examples.training import __main__ as program
from examples.training import flights, model

pytestmark = pytest.mark.slow

HOUR = pd.Timedelta("1h")
DAYS = 2


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Threads that wait for each other take ten times as long where other tests use the same cores.
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """The first days of an airport, which a mock client computes in seconds, and the aircraft that fly there."""
    loaded = data.load(months=1, days=DAYS)
    for name in ("departures", "schedule"):
        loaded[name] = loaded[name][loaded[name]["origin"] == "LGA"]
    flown = loaded["schedule"]["tailnum"]
    loaded["planes"] = loaded["planes"][loaded["planes"]["tailnum"].isin(flown)]
    return {name: rows.reset_index(drop=True) for name, rows in loaded.items()}


def ready() -> MockClient:
    client = MockClient()
    flights.commit(client)
    return client


def test_the_day_is_served_as_it_is_trained(
    tables: dict[str, pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    client = ready()
    run = program.Run(client=client, tables=tables, ahead=HOUR)
    assert run.moments[0].tz_convert("UTC") == pd.Timestamp("2013-01-02T08:00Z")
    history, last = (flights.between(tables, *ends) for ends in ((None, run.moments[0]), (run.moments[0], None)))
    assert not flights.are_sent(client, history)
    flights.send(client, history)
    assert (flights.are_sent(client, history), flights.are_sent(client, last)) == (True, False)
    trained, count = program.train(run, history)
    assert count == (tables["departures"]["departed"] <= run.moments[0]).sum()
    predicted = program.serve(run, trained, sent=False)
    # Each flight of the day is predicted once.
    day = tables["schedule"]["due"].dt.tz_convert(program.ZONE).dt.day == DAYS
    assert sorted(predicted["flight_id"]) == sorted(tables["schedule"][day]["flight_id"])
    result = program.check(run, predicted, count)
    assert (result.flights, result.trained) == (
        predicted["flight_id"].isin(tables["departures"]["flight_id"]).sum(),
        count,
    )
    assert set(result.auc) == {"model", *model.BASELINES}
    assert "equal to the bit" in capsys.readouterr().out
    # At another start nothing is sent, and the predictions are the same.
    assert flights.are_sent(client, last)
    again = program.serve(run, trained, sent=True)
    pd.testing.assert_frame_equal(again, predicted)
    # A value that was served otherwise is found, and named.
    predicted["Origin.mean_delay_1d"] += 1e-9
    with pytest.raises(RuntimeError, match=r"differ from those of a training set: Origin\.mean_delay_1d$"):
        program.check(run, predicted, count)


def test_a_row_doesn_t_see_its_own_flight(tables: dict[str, pd.DataFrame]) -> None:
    """Features are the same whether or not a flight and all that follows it has happened."""
    everything, past = ready(), ready()
    chosen = tables["departures"].iloc[len(tables["departures"]) // 4]
    rows = flights.labelled(tables, HOUR)
    row = rows[rows["departed"] == chosen["departed"]].head(1)
    flights.send(everything, tables)
    flights.send(past, flights.between(tables, None, row[flights.AT].iloc[0]))
    one, other = (
        client.training_set(flights.INPUTS, flights.OUTPUTS, flights.AT, row).to_pandas()
        for client in (everything, past)
    )
    assert flights.different(one, other) == []
    assert one["Origin.departures_1h"].tolist() != [0]


def test_each_event_is_in_one_part(tables: dict[str, pd.DataFrame]) -> None:
    cuts = [None, *pd.to_datetime(["2013-01-01T20:00Z", "2013-01-02T20:15Z"]), None]
    parts = [flights.between(tables, after, until) for after, until in pairwise(cuts)]
    for name, rows in tables.items():
        pd.testing.assert_frame_equal(pd.concat([part[name] for part in parts]), rows)
    assert (parts[0]["departures"]["departed"] <= cuts[1]).all()


def test_a_stack_that_has_a_part_of_the_flights_is_refused(tables: dict[str, pd.DataFrame]) -> None:
    client = ready()
    flights.send(client, flights.between(tables, None, pd.Timestamp("2013-01-02T00:00Z")))
    with pytest.raises(RuntimeError, match="new data folder"):
        flights.are_sent(client, tables)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([0.0], [-0.0]),
        ([0.1 + 0.2], [0.3]),
        ([1.0, None], [1.0, 2.0]),
        ([None, 1.0], [1.0, None]),
        (["a"], ["b"]),
        ([True], [False]),
    ],
)
def test_differences_of_a_bit_are_found(one: list[Any], other: list[Any]) -> None:
    left, right = (pd.DataFrame({"x": pd.array(values), "same": 1}) for values in (one, other))
    assert flights.different(left, right) == ["x"]
    assert flights.different(left, left.copy()) == []


def known(days: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a matrix and labels of 40 flights a day that are late by a random rule; they leave two hours later."""
    draw = np.random.default_rng(3)
    count = 40 * days
    at = pd.date_range("2013-01-01T00:00Z", periods=count, freq="36min")
    matrix = pd.DataFrame({name: draw.choice(["a", "b"], count) for name in model.CATEGORIES} | {"hour": at.hour})
    matrix = matrix.assign(**{name: draw.normal(size=count) for name in model.NUMBERS})
    late = pd.Series(matrix["Origin.mean_delay_1h"] + draw.normal(size=count) > 1)
    return matrix, pd.DataFrame({"at": at, "departed": at + 2 * HOUR, "late": late})


def test_a_period_knows_the_past_only() -> None:
    matrix, labels = known(days=15)
    begin, end = pd.Timestamp("2013-01-06", tz="UTC"), pd.Timestamp("2013-01-16", tz="UTC")

    def evaluated(matrix: pd.DataFrame, turned: "pd.Series[bool]") -> list[model.Period]:
        return list(model.periods(matrix, labels.assign(late=labels["late"] ^ turned), begin, end, 5))

    first, second = evaluated(matrix, pd.Series(data=False, index=matrix.index))
    assert (first.begin, second.begin) == (begin, begin + pd.Timedelta("5D"))
    assert (first.flights, second.flights) == (200, 200)
    # The last three flights of a day leave after midnight: by then their delay isn't known.
    assert (first.trained, second.trained) == (197, 397)
    # Labels and features of later flights change nothing in a period.
    later = labels["at"] >= second.begin
    moved = matrix.assign(**{name: matrix[name].where(~later, 7.0) for name in model.NUMBERS})
    assert evaluated(moved, later)[0] == first
    # Nor does the label of a flight that hadn't left when the period began; those of all others do.
    left = labels["departed"] < second.begin
    assert evaluated(matrix, ~left & ~later)[1] == second
    assert evaluated(matrix, left)[1].auc["model"] < 0.5 < second.auc["model"]


def test_a_category_that_training_hasn_t_seen_can_be_predicted() -> None:
    matrix, labels = known(days=10)
    trained = model.fitted(matrix, labels["late"])
    new = matrix.head(5).assign(**dict.fromkeys(model.CATEGORIES, "new"), **dict.fromkeys(model.NUMBERS, np.nan))
    assert np.isfinite(model.chance(trained, new)).all()


def test_without_scikit_learn_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules makes Python refuse the import.
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    # Modules that are imported already would be taken as they are.
    monkeypatch.delitem(sys.modules, "examples.training.__main__")
    monkeypatch.delitem(sys.modules, "examples.training.model")
    monkeypatch.delattr(examples.training, "model")
    with pytest.raises(SystemExit, match=r"pip install 'caraway\[training\]'"):
        runpy.run_module("examples.training", run_name="__main__")
