"""Comparison of served values with expected ones."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

# The relative difference up to which floats agree: sums in another order, or by another implementation of exp, may
# differ in their last bits.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A served value that differs from the expected one."""

    flight: str
    feature: str
    served: object
    expected: object

    def __str__(self) -> str:
        return f"{self.feature} of flight {self.flight}: served {self.served!r}, expected {self.expected!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The outcome of a comparison: the numbers of values equal to the bit and of those within the tolerance."""

    identical: int
    close: int
    disagreements: tuple[Disagreement, ...]

    @property
    def total(self) -> int:
        """The number of values that were compared."""
        return self.identical + self.close + len(self.disagreements)

    @property
    def agreeing(self) -> int:
        """The number of values that agree."""
        return self.identical + self.close


def compare(served: pd.DataFrame, expected: pd.DataFrame, flight_ids: list[str]) -> Agreement:
    """Compare frames of the same flights, in the same order, feature by feature.

    Raises `ValueError` if the frames differ in features or in their number of rows.
    """
    if set(served.columns) != set(expected.columns) or not len(served) == len(expected) == len(flight_ids):
        odd = sorted(set(served.columns) ^ set(expected.columns))
        raise ValueError(
            f"{len(served)} rows were served and {len(expected)} expected; features only served or only expected: {odd}"
        )
    identical = close = 0
    wrong: list[Disagreement] = []
    for feature in expected.columns:
        for flight, one, other in zip(flight_ids, values(served[feature]), values(expected[feature]), strict=True):
            if type(one) is type(other) and one == other:
                identical += 1
            elif _close(one, other):
                close += 1
            else:
                wrong.append(Disagreement(flight=flight, feature=str(feature), served=one, expected=other))
    return Agreement(identical=identical, close=close, disagreements=tuple(wrong))


def values(column: "pd.Series[Any]") -> Iterator[object]:
    """Yield a column's values as Python's own; every kind of null becomes None."""
    for value in column.astype(object):
        yield None if value is None or value is pd.NA or value is pd.NaT or value != value else value  # noqa: PLR0124 (NaN)


def _close(one: object, other: object) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=TOLERANCE)
