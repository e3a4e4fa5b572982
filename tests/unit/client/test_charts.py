"""Charts of distributions and of freshness show what the tables and the server have."""

import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import caraway
from caraway.client import Client
from caraway.client.charts import BINS, CATEGORIES, plot_distributions, plot_drift, plot_freshness
from caraway.compute.profiles.tables import Profile, profiled
from caraway.errors import InvalidInputError, UnavailableError
from caraway.testing import MockClient
from tests.unit.client.stub import running

CHANCE = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")


def profile_of(**columns: Any) -> Profile:
    return profiled([pa.table({name.replace("__", "."): values for name, values in columns.items()})])


def steps(axes: Axes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the heights of the bins of numbers by label."""
    patches: list[Any] = list(axes.patches)
    return {str(patch.get_label()): patch.get_data()[0] for patch in patches}


def edges_of(axes: Axes) -> np.ndarray[Any, Any]:
    """Return the edges of the bins of numbers."""
    patch: Any = axes.patches[0]
    found: np.ndarray[Any, Any] = patch.get_data()[1]
    return found


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def test_numbers_are_shares_of_common_bins() -> None:
    # Below 256 values a sketch of quantiles has all of them.
    was, now = np.arange(200.0), np.arange(100.0, 300.0)
    axes = plot_distributions({"training": pd.DataFrame({"x": was}), "served": pd.DataFrame({"x": now})}, "x")
    drawn = steps(axes)
    assert list(drawn) == ["training: 200 rows, 0.0% missing", "served: 200 rows, 0.0% missing"]
    edges = edges_of(axes)
    assert len(edges) == BINS + 1
    for values, heights in zip((was, now), drawn.values(), strict=True):
        inner = np.concatenate([[-np.inf], edges[1:-1], [np.inf]])
        counted = [np.mean((values > low) & (values <= high)) for low, high in pairwise(inner)]
        np.testing.assert_allclose(heights, counted, atol=1e-12)
        assert heights.sum() == pytest.approx(1.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "share of values")


def test_an_outlier_squeezes_nothing_and_a_constant_is_drawn() -> None:
    many = pd.DataFrame({"x": [*CHANCE.normal(size=10_000), 1e9]})
    edges = edges_of(plot_distributions({"a": many}, "x"))
    assert edges[-1] < 10
    axes = plot_distributions({"a": pd.DataFrame({"x": [3, 3, None]})}, "x")
    assert legend(axes) == ["a: 3 rows, 33.3% missing"]
    (heights,) = steps(axes).values()
    assert heights.sum() == pytest.approx(1.0)


def test_texts_are_bars_of_the_most_frequent_ones() -> None:
    was = profile_of(city=["b"] * 6 + ["a"] * 3 + [None])
    now = profile_of(city=["c"] * 2 + ["b"] * 2 + ["a very long name of a city"] * 4)
    axes = plot_distributions({"was": was, "now": now}, "city")
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["b", "a very long name of …", "a", "c"]
    containers: list[Any] = list(axes.containers)
    bars = {str(bar.get_label()): [patch.get_height() for patch in bar] for bar in containers}
    assert bars["was: 10 rows, 10.0% missing"] == pytest.approx([6 / 9, 0, 3 / 9, 0])
    assert bars["now: 8 rows, 0.0% missing"] == pytest.approx([2 / 8, 4 / 8, 0, 2 / 8])
    many = profile_of(city=[f"c{number}" for number in range(100)])
    assert len(plot_distributions({"many": many}, "city").get_xticks()) == CATEGORIES


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"a": pd.DataFrame({"y": [1]})}, "a has no column x; columns: y"),
        ({"a": pd.DataFrame({"x": [1]}), "b": pd.DataFrame({"x": ["t"]})}, "in all tables .a: number, b: category"),
        ({"a": pd.DataFrame({"x": [datetime(2026, 1, 1, tzinfo=UTC)]})}, "a number, a text or a boolean"),
        ({}, "no tables"),
    ],
)
def test_columns_that_cannot_be_compared_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        plot_distributions(tables, "x")


def packed(found: Profile) -> str:
    return b64encode(found.to_bytes()).decode()


def test_a_feature_is_drawn_beside_its_training_set() -> None:
    was, now = profile_of(User__age=[1.0, 2.0]), profile_of(User__age=[8.0, 9.0, 10.0])
    profiles = {
        "feature": "User.age",
        "served": packed(now),
        "reference": "training",
        "reference_profile": packed(was),
    }
    distances = [
        {"distance": "psi", "value": 1.234, "drifted": True},
        {"distance": "missing", "value": 0.0, "drifted": False},
    ]
    report = {"features": [{"feature": "User.age", "distances": distances}]}
    with running() as stub, Client(stub.url) as client:
        stub.answers = [(200, profiles), (200, report)]
        axes = plot_drift("User.age", hours=6, client=client)
        assert [asked.path for asked in stub.asked[-2:]] == ["/api/v1/drift/profiles", "/api/v1/drift"]
        assert {asked.params["hours"] for asked in stub.asked[-2:]} == {"6"}
        assert legend(axes) == ["training: 2 rows, 0.0% missing", "served: 3 rows, 0.0% missing"]
        assert axes.get_title() == "drifted: psi 1.23"
        stub.answers = [
            (200, profiles | {"reference": None, "reference_profile": None}),
            (200, {"features": [{"feature": "User.age", "distances": []}]}),
        ]
        assert plot_drift("User.age", client=client).get_title() == "no reference"
        stub.answers = [(200, profiles | {"served": None})]
        with pytest.raises(InvalidInputError, match=r"User\.age wasn't served in the last 24 hours"):
            plot_drift("User.age", client=client)


def test_freshness_is_drawn_with_gaps() -> None:
    history = {
        "branch": "main",
        "step_seconds": 60,
        "datasets": [
            {"dataset": "Counts", "at": [0, 60, 240], "seconds": [0.02, 30.0, 0.03]},
            {"dataset": "Pages", "at": [240], "seconds": [0.004]},
        ],
    }
    with running() as stub, Client(stub.url) as client:
        stub.answers = [(200, history)] * 3
        axes = plot_freshness(["Counts"], client=client)
        (line,) = axes.get_lines()
        np.testing.assert_array_equal(np.asarray(line.get_ydata()), [0.02, 30.0, np.nan, np.nan, 0.03])
        assert pd.to_datetime(np.asarray(line.get_xdata()))[-1] == pd.Timestamp(240, unit="s")
        assert axes.get_yscale() == "log"
        _, below = plt.subplots()
        assert plot_freshness(client=client, ax=below) is below
        assert legend(below) == ["Counts", "Pages"]
        with pytest.raises(InvalidInputError, match="Other wasn't measured; measured: Counts, Pages"):
            plot_freshness(["Other"], client=client)


def test_a_mock_client_has_nothing_to_draw() -> None:
    client: Any = MockClient()
    with pytest.raises(InvalidInputError, match="no dataset was measured yet"):
        plot_freshness(client=client)
    with pytest.raises(InvalidInputError, match="wasn't served"):
        plot_drift("User.age", client=client)


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mpl.get_backend().lower() == "agg"
    # None in sys.modules makes Python refuse the import.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    client: Any = MockClient()
    remedy = r"needs matplotlib .*pip install 'caraway\[plot\]'"
    with pytest.raises(UnavailableError, match=remedy):
        plot_distributions({}, "x")
    with pytest.raises(UnavailableError, match=remedy):
        plot_drift("User.age", client=client)
    with pytest.raises(UnavailableError, match=remedy):
        plot_freshness(client=client)


def test_the_functions_are_names_of_the_package() -> None:
    assert (caraway.plot_distributions, caraway.plot_drift, caraway.plot_freshness) == (
        plot_distributions,
        plot_drift,
        plot_freshness,
    )
