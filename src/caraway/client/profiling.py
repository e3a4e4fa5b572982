"""Profiles of frames and training sets at the desk, and the drift of one from another."""

from collections.abc import Mapping, Sequence
from typing import Any

from caraway.client.training import TrainingSet, table_of
from caraway.compute.profiles.comparing import FALSE_ALARMS, DriftReport, compared
from caraway.compute.profiles.tables import Profile, profiled
from caraway.errors import InvalidInputError
from caraway.featuresets.features import Feature
from caraway.graph.drift import DEFAULT_DRIFT, Drift

# The rows of a frame that are profiled at once.
ROWS = 100_000


def profile(rows: Any, *, keys: Sequence[Feature | str] = (), delay: tuple[str, str] | None = None) -> Profile:
    """Return the profile of the columns of a table: counts, exact moments, quantiles and frequent values.

    Args:
        rows: A frame of pandas or polars, an Arrow table, or a training set.
        keys: The columns that tell which rows are of the same thing, such as a user's id. They aren't profiled.
        delay: The columns with the event time and with the time of ingestion. The seconds between them become the
            column `delay_seconds` of the profile.

    Raises:
        InvalidInputError: `rows` is something else, or there is no such column.
        UnavailableError: The library of the sketches isn't installed (`pip install caraway[drift]`).
    """
    if isinstance(rows, TrainingSet):
        if delay is not None:
            raise InvalidInputError("profile: a training set has no times of ingestion, so it has no delay")
        return rows.profile(keys)
    names = [key if isinstance(key, str) else key.fqn() for key in keys]
    return profiled(table_of(rows).to_batches(max_chunksize=ROWS), keys=names, delay=delay)


def drift(
    reference: Any,
    current: Any,
    *,
    thresholds: Drift | Mapping[str, Drift] = DEFAULT_DRIFT,
    false_alarms: float = FALSE_ALARMS,
) -> DriftReport:
    """Return which columns of a table have drifted from a reference, and by how much.

    A column has drifted if a distance reaches its threshold, and neither chance nor the error of a sketch explains it.

    Args:
        reference: The table with which the other one is compared, for example a training set: a profile, or something
            of which `profile` makes one.
        current: The other table, for example the features that were served today.
        thresholds: The thresholds of all columns, or of single ones by name.
        false_alarms: The greatest probability of any alarm if both tables are samples of the same distribution.

    Raises:
        InvalidInputError: A table is something else, or the probability isn't between 0 and 1.
        UnavailableError: The library of the sketches isn't installed (`pip install caraway[drift]`).
    """
    both = [found if isinstance(found, Profile) else profile(found) for found in (reference, current)]
    return compared(*both, thresholds=thresholds, false_alarms=false_alarms)
