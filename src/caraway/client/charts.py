"""Charts of matplotlib for notebooks: distributions of a feature beside each other, and the freshness of datasets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from caraway.client.client import Client
from caraway.client.extras import imported
from caraway.client.plotting import INSTALL, SIZE
from caraway.client.profiling import profile
from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import Profile
from caraway.errors import InvalidInputError
from caraway.featuresets.features import Feature

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The number of bins for numbers, and the largest number of texts that have bars: those that are the most frequent in
# any of the tables.
BINS, CATEGORIES = 40, 20
# Values outside of these quantiles are in the first and the last bin, so that an outlier doesn't squeeze all others.
EDGES = (0.005, 0.995)
# The characters of a category's name that are shown, so that the labels fit below the bars.
LABEL = 20


def plot_distributions(tables: Mapping[str, Any], column: Feature | str, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the distributions of a column in several tables beside each other.

    Numbers are drawn as the share of values in each of 40 bins of equal width, which all tables have in common; the
    first and the last bin also have what lies beyond. Texts and booleans are drawn as the shares of the most frequent
    values. The legend has the number of rows of each table, and the share of those that have no value.

    Args:
        tables: The tables by the names that the legend shows: profiles (`caraway.profile`), training sets, frames of
            pandas or polars, or Arrow tables.
        column: The column, as a feature or by name.
        ax: The axes to draw in; by default those of a new figure.

    Returns:
        The axes, to label them or to save their figure.

    Raises:
        InvalidInputError: A table has no such column, or its values are neither numbers nor texts nor booleans.
        UnavailableError: matplotlib, or the library of the sketches, isn't installed.
    """
    pyplot = imported("matplotlib.pyplot", wanted_by="plot_distributions", install=INSTALL)
    name = column.fqn() if isinstance(column, Feature) else column
    columns = {label: _column(label, table, name) for label, table in tables.items()}
    kinds = {found.kind for found in columns.values() if found.rows > found.missing}
    if not columns or len(kinds) > 1 or kinds - {Kind.NUMBER, Kind.CATEGORY}:
        shown = ", ".join(f"{label}: {found.kind}" for label, found in columns.items()) or "no tables"
        raise InvalidInputError(
            f"plot_distributions: {name} has to be a number, a text or a boolean in all tables ({shown})"
        )
    axes: Axes = pyplot.subplots(figsize=SIZE, layout="constrained")[1] if ax is None else ax
    if kinds == {Kind.CATEGORY}:
        _draw_categories(axes, columns)
    else:
        _draw_numbers(axes, columns)
    axes.set_xlabel(name)
    axes.set_ylabel("share of values")
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend()
    return axes


def plot_drift(
    feature: Feature | str,
    *,
    hours: int = 24,
    reference: str | None = None,
    client: Client | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw what was served of a feature beside its reference, such as the training set (`Client.set_reference`).

    The title says by which distances the feature has drifted, as `Client.drift` does.

    Args:
        feature: The feature, as an object or by its full name.
        hours: How many hours back the feature was served. The current hour is one of them.
        reference: "training", "previous", "day" or "week"; by default the reference that was set, or else "day".
        client: The client to use; by default one of the server that the environment names, or that runs on this
            machine.
        ax: The axes to draw in; by default those of a new figure.

    Returns:
        The axes, to label them or to save their figure.

    Raises:
        InvalidInputError: The feature wasn't served in these hours.
        RemoteError: The branch has no such feature.
        UnavailableError: matplotlib, or the library of the sketches, isn't installed.
    """
    imported("matplotlib.pyplot", wanted_by="plot_drift", install=INSTALL)
    name = feature.fqn() if isinstance(feature, Feature) else feature
    asked = Client() if client is None else client
    profiles = asked.drift_profiles(name, hours=hours, reference=reference)
    if "served" not in profiles:
        raise InvalidInputError(
            f"plot_drift: {name} wasn't served in the last {hours} hours by queries with log=True, or isn't profiled "
            "yet"
        )
    axes = plot_distributions(profiles, name, ax=ax)
    found = asked.drift(name, hours=hours, reference=reference)["features"]
    distances = [one for each in found if each["feature"] == name for one in each["distances"] if one["drifted"]]
    told = ", ".join(f"{one['distance']} {one['value']:.3g}" for one in distances)
    axes.set_title(f"drifted: {told}" if told else "no drift" if len(profiles) > 1 else "no reference")
    return axes


def plot_freshness(datasets: Sequence[str] = (), *, client: Client | None = None, ax: "Axes | None" = None) -> "Axes":
    """Draw how old what queries read was over the last day: for each minute the greatest age, on a logarithmic scale.

    Args:
        datasets: The names of datasets; by default all of the branch that the server measures.
        client: The client to use; by default one of the server that the environment names, or that runs on this
            machine.
        ax: The axes to draw in; by default those of a new figure.

    Returns:
        The axes, to label them or to save their figure.

    Raises:
        InvalidInputError: A dataset wasn't measured, or none was.
        UnavailableError: matplotlib isn't installed.
    """
    pyplot = imported("matplotlib.pyplot", wanted_by="plot_freshness", install=INSTALL)
    dates = imported("matplotlib.dates", wanted_by="plot_freshness", install=INSTALL)
    history = (Client() if client is None else client).freshness_history()
    missing = [name for name in datasets if name not in history]
    if missing:
        raise InvalidInputError(
            f"plot_freshness: {', '.join(missing)} wasn't measured; measured: {', '.join(history) or 'none'}"
        )
    if not history:
        raise InvalidInputError("plot_freshness: no dataset was measured yet (server.heartbeat_seconds)")
    axes: Axes = pyplot.subplots(figsize=SIZE, layout="constrained")[1] if ax is None else ax
    for name in datasets or history:
        # A minute without a measurement, such as while the server was down, becomes NaN, so that the line has a gap
        # there.
        ages = history[name].resample("1min").max()
        axes.plot(pd.DatetimeIndex(ages.index).tz_localize(None).to_numpy(), ages.to_numpy(), label=name)
    axes.set_yscale("log")
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("time (UTC)")
    axes.set_ylabel("age of what queries read (s)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    return axes


def _column(label: str, table: Any, name: str) -> ColumnProfile:
    found = table if isinstance(table, Profile) else profile(table)
    if name not in found.columns:
        shown = ", ".join(list(found.columns)[:20])
        raise InvalidInputError(f"plot_distributions: {label} has no column {name}; columns: {shown or 'none'}")
    return found.columns[name]


def _legend(label: str, column: ColumnProfile) -> str:
    missing = column.missing / column.rows if column.rows else 0.0
    return f"{label}: {column.rows:,} rows, {missing:.1%} missing"


def _draw_numbers(axes: "Axes", columns: Mapping[str, ColumnProfile]) -> None:
    bounds = [found for column in columns.values() for share in EDGES if (found := column.quantile(share)) is not None]
    low, high = (min(bounds), max(bounds)) if bounds else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    for label, column in columns.items():
        axes.stairs(_shares(column, edges), edges, label=_legend(label, column), linewidth=1.5)


def _shares(column: ColumnProfile, edges: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Return the shares of the finite values in bins, whose first and last ones have what lies beyond."""
    if column.quantiles is None or column.quantiles.is_empty():
        return [0.0] * (len(edges) - 1)
    return [float(share) for share in column.quantiles.get_pmf(edges[1:-1].tolist(), inclusive=True)]


def _category_shares(column: ColumnProfile) -> dict[str, float]:
    count = column.rows - column.missing
    return {text: found / count for text, found in column.top(count)}


def _draw_categories(axes: "Axes", columns: Mapping[str, ColumnProfile]) -> None:
    shares = {label: _category_shares(column) for label, column in columns.items()}
    greatest: dict[str, float] = {}
    for found in shares.values():
        for text, share in found.items():
            greatest[text] = max(greatest.get(text, 0.0), share)
    shown = sorted(greatest, key=lambda text: (-greatest[text], text))[:CATEGORIES]
    width = 0.8 / len(columns)
    places = np.arange(len(shown))
    for number, (label, column) in enumerate(columns.items()):
        heights = [shares[label].get(text, 0.0) for text in shown]
        axes.bar(places + width * (number + 0.5) - 0.4, heights, width, label=_legend(label, column))
    labels = [text if len(text) <= LABEL else f"{text[:LABEL]}…" for text in shown]
    axes.set_xticks(places, labels, rotation=30 if any(len(text) > 5 for text in labels) else 0)
