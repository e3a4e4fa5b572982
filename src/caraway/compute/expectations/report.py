"""The state of expectations: what was counted, and whether a dataset is as its owner expects.

The last hour and the last day of a dataset end with the newest window of event time that has rows. So the state of a
dataset depends on its rows alone, and that of a dataset into which nothing comes stays as it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from caraway.compute.expectations.counts import DAY_US, HOUR_US, NONE, ByWindow, Counts
from caraway.compute.expectations.suite import CheckInfo
from caraway.dtypes.instants import to_datetime


class Status(StrEnum):
    """The answer to the question whether enough rows are as expected."""

    OK = "ok"
    VIOLATED = "violated"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A row that failed a check.

    Attributes:
        at: Its event time.
        values: The values of the dataset's keys and of the columns of the check, as JSON values by column.
    """

    at: datetime
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationState:
    """The counts of one check of a dataset.

    Attributes:
        dataset: The dataset.
        version: The version of its expectations.
        name: The name of the check with its columns.
        mostly: The share of rows that should pass.
        strict: True if rows of sources that fail are refused, so that they aren't counted.
        total: The counts of all rows.
        hour: The counts of the last hour of event time.
        day: The counts of the last day of event time.
        newest_at: The beginning of the newest window of event time that has rows; None if none has.
        samples: Some rows that failed.
    """

    dataset: str
    version: int
    name: str
    mostly: float
    strict: bool
    total: Counts
    hour: Counts
    day: Counts
    newest_at: datetime | None = None
    samples: Sequence[Failure] = field(default=())

    @property
    def status(self) -> Status:
        """The status by the last hour that has rows which the check looks at, else by the last day, else by all."""
        for counts in (self.hour, self.day, self.total):
            if counts.evaluated:
                return Status.OK if counts.are_as_expected(self.mostly) else Status.VIOLATED
        return Status.NO_DATA

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "dataset": self.dataset,
            "version": self.version,
            "expectation": self.name,
            "status": self.status.value,
            "mostly": self.mostly,
            "strict": self.strict,
            "newest_at": None if self.newest_at is None else self.newest_at.isoformat(),
            **{
                name: {"evaluated": counts.evaluated, "failed": counts.failed, "rate": counts.rate}
                for name, counts in (("total", self.total), ("last_hour", self.hour), ("last_day", self.day))
            },
            "samples": [{"at": one.at.isoformat(), "values": dict(one.values)} for one in self.samples],
        }


def states(
    dataset: str,
    version: int,
    checks: Sequence[CheckInfo],
    counts: ByWindow,
    totals: Mapping[int, Counts] | None = None,
) -> list[ExpectationState]:
    """Return the states of a dataset's checks.

    Args:
        dataset: The dataset.
        version: The version of its expectations.
        checks: The checks, in order.
        counts: The counts by check and window.
        totals: The counts of all rows, by check; None: `counts` has all windows.
    """
    newest = max((start for _, start in counts), default=None)
    found = []
    for number, check in enumerate(checks):
        own = {start: one for (place, start), one in counts.items() if place == number}
        hour = _sum(one for start, one in own.items() if newest is not None and start > newest - HOUR_US)
        day = _sum(one for start, one in own.items() if newest is not None and start > newest - DAY_US)
        found.append(
            ExpectationState(
                dataset=dataset,
                version=version,
                name=check.name,
                mostly=check.mostly,
                strict=check.strict,
                total=_sum(own.values()) if totals is None else totals.get(number, NONE),
                hour=hour,
                day=day,
                newest_at=None if newest is None else to_datetime(newest),
            )
        )
    return found


def _sum(counts: Iterable[Counts]) -> Counts:
    total = NONE
    for one in counts:
        total += one
    return total
