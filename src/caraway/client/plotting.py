"""Features of one entity over time, as a frame and as a chart of matplotlib."""

import warnings
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from caraway.client.arguments import input_features, output_features
from caraway.client.client import Client
from caraway.client.extras import imported
from caraway.client.training import frame_of
from caraway.dtypes.instants import instant_us
from caraway.errors import InvalidInputError, OfflineQueryError, quoted
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHERE = "plot_features"
INSTALL = "pip install 'caraway[plot]'"
# The least, the default and the largest number of points. A line needs two, and no screen shows more than some
# thousands side by side.
FEWEST_POINTS, POINTS, MOST_POINTS = 2, 500, 10_000
# The name of the column of times. Names of features contain a dot, so no feature has this name.
TIME = "time"
# The size of a chart in inches: wide enough for a line of a day, and low enough for several charts below each other in
# a notebook.
SIZE = (9.0, 3.5)


def plot_features(
    features: Sequence[Feature | Featureset | str],
    inputs: Mapping[Feature | str, Any],
    begin: Any,
    end: Any,
    *,
    points: int = POINTS,
    client: Client | None = None,
    as_known: bool = False,
    timeout: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw features of one entity over time, each as of evenly spaced times; see `Client.training_set`.

    A value is drawn as a horizontal line until the next point, and where there is no value the line has a gap. A
    change between two points appears at the later one.

    Args:
        features: The features, as objects or full names. They have numbers or booleans; a featureset stands for those
            of its features that do.
        inputs: The value of each input feature: the entity.
        begin: The time of the first point: a datetime, ISO text or epoch number; without a zone it is UTC.
        end: The time of the last point.
        points: The number of points, from 2 to 10,000.
        client: The client to use; by default one of the server that the environment names, or that runs on this
            machine.
        as_known: True: each point sees only what had been ingested by its time; see `Client.training_set`.
        timeout: The longest wait in seconds; None: as long as it takes.
        ax: The axes to draw in; by default those of a new figure.

    Returns:
        The axes, to label them or to save their figure: `ax.figure.savefig("delays.png")`.

    Raises:
        UnavailableError: matplotlib isn't installed.
        InvalidInputError: An argument is wrong, or a feature isn't a number or boolean.
        NotServedError: The values aren't computed in time.
        OfflineQueryError: The query failed, or the features can't be computed as of any of the times.
        RemoteError: The server refused.
    """
    # Both are imported before the query, which may take long, so that an error says at once if matplotlib is missing.
    pyplot = imported("matplotlib.pyplot", wanted_by=WHERE, install=INSTALL)
    dates = imported("matplotlib.dates", wanted_by=WHERE, install=INSTALL)
    history = feature_history(
        features, inputs, begin, end, points=points, client=client, as_known=as_known, timeout=timeout
    )
    drawn = _drawable(history, named={_name(item) for item in features if not isinstance(item, Featureset)})
    axes: Axes = pyplot.subplots(figsize=SIZE, layout="constrained")[1] if ax is None else ax
    times = pd.DatetimeIndex(history.index).tz_localize(None).to_numpy()
    for name, values in drawn.items():
        axes.plot(times, values, drawstyle="steps-post", label=name)
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("time (UTC)")
    axes.set_title(", ".join(f"{_name(feature)} = {quoted(value)}" for feature, value in inputs.items()))
    axes.grid(visible=True, alpha=0.3)
    if len(drawn) == 1:
        axes.set_ylabel(next(iter(drawn)))
    else:
        axes.legend()
    return axes


def feature_history(
    features: Sequence[Feature | Featureset | str],
    inputs: Mapping[Feature | str, Any],
    begin: Any,
    end: Any,
    *,
    points: int = POINTS,
    client: Client | None = None,
    as_known: bool = False,
    timeout: float | None = None,
) -> pd.DataFrame:
    """Compute features of one entity as of evenly spaced times; see `plot_features` for the arguments.

    Returns:
        A column for each feature, with nullable types, and the times, in UTC, as the index. If features can't be
        computed as of some of the times, they are null there, and a warning has the number of these times and a reason.

    Raises:
        InvalidInputError: An argument is wrong.
        NotServedError: The values aren't computed in time.
        OfflineQueryError: The query failed, or the features can't be computed as of any of the times.
        RemoteError: The server refused.
    """
    given, wanted = input_features(list(inputs), WHERE), output_features(features, WHERE)
    if not given:
        raise InvalidInputError(f"{WHERE}: inputs is empty; it has the entity, as {{feature: value}}")
    if not wanted:
        raise InvalidInputError(f"{WHERE}: features is empty")
    times = _times(begin, end, points)
    # Columns of objects, so that a list, which may be an input, isn't taken for the values of many rows.
    entity = {name: pd.Series([value] * points) for name, value in zip(given, inputs.values(), strict=True)}
    found = (client or Client()).training_set(
        list(inputs),
        list(features),
        TIME,
        pd.DataFrame({**entity, TIME: times}),
        as_known=as_known,
        timeout=timeout,
        progress=False,
    )
    # `to_pandas` would warn of rows by methods of the training set, which the caller of this function doesn't have.
    rows = frame_of(pa.concat_tables(found.parts()))
    if found.failed:
        reason = rows.iloc[:, -1].dropna().iloc[0]
        if found.failed == len(found):
            raise OfflineQueryError(f"{WHERE}: the features can't be computed as of any of the times: {reason}")
        warnings.warn(f"{WHERE}: {found.failed} of {points} points have no value: {reason}", stacklevel=2)
    frame = rows.iloc[:, :-2]
    return frame.drop(columns=[TIME, *(name for name in given if name in frame and name not in wanted)]).set_index(
        times
    )


def _name(feature: object) -> str:
    return feature.fqn() if isinstance(feature, Feature) else str(feature)


def _times(begin: Any, end: Any, points: int) -> pd.DatetimeIndex:
    """Return the times of the points, in whole microseconds."""
    if not FEWEST_POINTS <= points <= MOST_POINTS:
        raise InvalidInputError(f"{WHERE}: points is a number from {FEWEST_POINTS} to {MOST_POINTS:,}, not {points}")
    first, last = _instant(begin, "begin"), _instant(end, "end")
    if first >= last:
        raise InvalidInputError(f"{WHERE}: begin, {begin}, isn't before end, {end}")
    # Whole numbers have no error of rounding: the last point is exactly at the end.
    between = [first + (last - first) * number // (points - 1) for number in range(points)]
    return pd.DatetimeIndex(pd.to_datetime(between, unit="us", utc=True), name=TIME)


def _instant(value: Any, argument: str) -> int:
    try:
        return instant_us(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{WHERE}: {argument}: {error}") from error


def _drawable(history: pd.DataFrame, named: set[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the features that have numbers, with NaN for null.

    Raises `InvalidInputError` if one of those that are `named` has something else, or if there are none.
    """
    drawn = {}
    for name in history:
        column = history[name]
        if all(isinstance(value, (Number, np.bool_)) for value in column.dropna()):
            drawn[str(name)] = np.array([np.nan if pd.isna(value) else float(value) for value in column])
        elif name in named:
            shown = quoted(column.dropna().iloc[0])
            raise InvalidInputError(f"{WHERE}: {name} can't be drawn: it has values such as {shown}, not numbers")
    if not drawn:
        raise InvalidInputError(f"{WHERE}: none of the features has numbers: {', '.join(map(str, history))}")
    return drawn
