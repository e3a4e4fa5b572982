"""Changes of a source dataset, as they come in."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An insert or a delete at an event time.

    `row` is in stored form (docs/records.md) and complete for an insert; a delete needs the keys only. The time stamp
    column, if it is there, is not read: `time_us` stands for it.
    """

    time_us: int
    row: Mapping[str, object]
    delete: bool = False
