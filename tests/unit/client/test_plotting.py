"""Charts of features over time: the values are those of a training set, at the times that the chart shows."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Exact
from typing import Any, Optional

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt

import caraway
from caraway.client import Client
from caraway.client.plotting import MOST_POINTS, feature_history, plot_features
from caraway.client.training import stream_of
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal
from caraway.errors import InvalidInputError, OfflineQueryError, UnavailableError
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs
from caraway.testing import MockClient
from tests.unit.client.stub import Stub, running

__owner__ = "shop@example.com"

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
webhook = Webhook(name="shop")


@source(webhook.endpoint("sales"), disorder="14d", cdc="append")
@dataset
class Sales:
    shop: str
    amount: int
    at: datetime


@dataset(index=True)
class Turnover:
    shop: str = field(key=True)
    in_1h: int
    at: datetime

    @pipeline
    @inputs(Sales)
    def by_shop(cls, sales: Dataset) -> Dataset:
        return sales.groupby("shop").aggregate(in_1h=Sum(of="amount", window=Continuous("1h")))


@source(webhook.endpoint("prices"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Prices:
    shop: str = field(key=True)
    price: Decimal[2]
    label: str
    at: datetime


@featureset
class Shop:
    shop: str
    in_1h: int = F(Turnover.in_1h, default=0)
    price: Optional[Decimal[2]] = F(Prices.price)
    label: Optional[str] = F(Prices.label)
    is_busy: bool = F(col("in_1h") > 5)


@pytest.fixture(scope="module")
def client() -> MockClient:
    made = MockClient()
    made.commit("shops", [Sales, Turnover, Prices], [Shop])
    sales = {"shop": ["a", "a", "b"], "amount": [3, 4, 100], "at": [NOON, NOON + HOUR / 2, NOON]}
    made.log("shop", "sales", pd.DataFrame(sales))
    price = {"shop": ["a"], "price": [Exact("9.50")], "label": ["cheap"], "at": [NOON + HOUR]}
    made.log("shop", "prices", pd.DataFrame(price))
    return made


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")


def test_a_line_has_the_features_as_of_each_point(client: MockClient) -> None:
    axes = plot_features([Shop.in_1h], {Shop.shop: "a"}, NOON - HOUR / 4, NOON + 7 * HOUR / 4, points=5, client=client)
    (line,) = axes.get_lines()
    # The window of an hour has the sale at noon from then on, and no more at a quarter past one.
    assert np.asarray(line.get_ydata()).tolist() == [0.0, 3.0, 7.0, 4.0, 0.0]
    at = [datetime(2024, 1, 1, 11, 45), datetime(2024, 1, 1, 12, 15)]  # noqa: DTZ001 (times of matplotlib are without)
    assert pd.to_datetime(np.asarray(line.get_xdata())).tolist()[:2] == at
    assert (axes.get_ylabel(), axes.get_title(), axes.get_legend()) == ("Shop.in_1h", "Shop.shop = 'a'", None)


def test_the_history_is_the_training_set_of_its_times(client: MockClient) -> None:
    found = feature_history([Shop], {Shop.shop: "a"}, NOON, NOON + 2 * HOUR, points=97, client=client)
    rows = pd.DataFrame({"Shop.shop": "a", "t": found.index})
    expected = client.training_set([Shop.shop], [Shop], "t", rows).to_pandas().drop(columns="t")
    pd.testing.assert_frame_equal(found.reset_index(drop=True), expected)
    assert found.index[0] == NOON
    assert found.index[-1] == NOON + 2 * HOUR
    assert found.index.is_unique


def test_numbers_of_all_kinds_are_drawn_and_nulls_are_gaps(client: MockClient) -> None:
    axes = plot_features([Shop], {"Shop.shop": "a"}, NOON, NOON + 2 * HOUR, points=3, client=client)
    drawn = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.get_lines()}
    # A featureset stands for its features with numbers: neither the label nor the input is one.
    assert list(drawn) == ["Shop.in_1h", "Shop.price", "Shop.is_busy"]
    np.testing.assert_array_equal(drawn["Shop.price"], [np.nan, 9.5, 9.5])
    assert axes.get_legend() is not None


def test_a_chart_is_drawn_into_given_axes(client: MockClient) -> None:
    _, (above, below) = plt.subplots(2)
    drawn = plot_features(["Shop.in_1h"], {"Shop.shop": "b"}, NOON, NOON + HOUR, points=2, client=client, ax=below)
    assert drawn is below
    assert (len(above.get_lines()), len(below.get_lines())) == (0, 1)


def test_times_are_whole_microseconds_from_begin_to_end(client: MockClient) -> None:
    end = NOON + timedelta(microseconds=10)
    found = feature_history([Shop.in_1h], {Shop.shop: "a"}, NOON, end, points=4, client=client)
    assert [(at - pd.Timestamp(NOON)) // pd.Timedelta("1us") for at in found.index] == [0, 3, 6, 10]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"points": 1}, "from 2 to 10,000, not 1"),
    ({"points": MOST_POINTS + 1}, "from 2 to 10,000, not 10001"),
    ({"begin": NOON + HOUR}, "isn't before end"),
    ({"begin": "noon"}, "begin: .*noon"),
    ({"inputs": {}}, "inputs is empty"),
    ({"features": []}, "features is empty"),
    ({"features": [Shop.in_1h, Shop.label]}, r"Shop\.label can't be drawn: it has values such as 'cheap'"),
    ({"features": ["Shop.shop"]}, r"Shop\.shop can't be drawn"),
    ({"features": "Shop.in_1h"}, "outputs is a list of features"),
]


@pytest.mark.parametrize(("change", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_wrong_arguments_are_named(client: MockClient, change: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"features": [Shop.in_1h], "inputs": {Shop.shop: "a"}, "begin": NOON, "end": NOON + HOUR}
    with pytest.raises(InvalidInputError, match=f"plot_features: .*{told}"):
        plot_features(**given | change, client=client)


def answers(stub: Stub, errors: list[str | None]) -> None:
    """Prepare the answers of an offline query of which rows fail for these reasons."""
    failed = sum(error is not None for error in errors)
    result = pa.table(
        {
            "Shop.in_1h": pa.array([1 if error is None else None for error in errors], pa.int64()),
            "time": pa.array([NOON] * len(errors), pa.timestamp("us", "UTC")),
            "_history": pa.array(["Turnover begins later"] * len(errors), pa.string()),
            "_error": pa.array(errors, pa.string()),
        }
    )
    status = {"request_id": "r", "status": "succeeded", "rows": len(errors), "error": None, "parts": 1}
    done = status | {"rows_done": len(errors), "rows_failed": failed, "rows_short": len(errors)}
    stub.answers = [(200, {"request_id": "r"}), (200, done), (200, stream_of(result))]


def test_a_point_that_fails_is_a_gap_and_the_reason_is_told() -> None:
    with running() as stub, Client(stub.url) as client:
        answers(stub, [None, "row 1: no shop", None])
        with pytest.warns(UserWarning, match="1 of 3 points have no value: row 1: no shop") as told:
            axes = plot_features(["Shop.in_1h"], {"Shop.shop": "a"}, NOON, NOON + HOUR, points=3, client=client)
        assert len(told) == 1, "a chart has no rows whose history its reader could look up"
        np.testing.assert_array_equal(np.asarray(axes.get_lines()[0].get_ydata()), [1.0, np.nan, 1.0])
        answers(stub, ["row 0: no shop", "row 1: no shop"])
        with pytest.raises(OfflineQueryError, match="as of any of the times: row 0: no shop"):
            plot_features(["Shop.in_1h"], {"Shop.shop": "a"}, NOON, NOON + HOUR, points=2, client=client)


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, client: MockClient) -> None:
    # None in sys.modules makes Python refuse the import.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(UnavailableError, match=r"plot_features needs matplotlib .*pip install 'caraway\[plot\]'"):
        plot_features([Shop.in_1h], {Shop.shop: "a"}, NOON, NOON + HOUR, client=client)
    # The values themselves need no matplotlib.
    assert len(feature_history([Shop.in_1h], {Shop.shop: "a"}, NOON, NOON + HOUR, client=client)) == 500


def test_both_functions_are_names_of_the_package() -> None:
    assert (caraway.plot_features, caraway.feature_history) == (plot_features, feature_history)
