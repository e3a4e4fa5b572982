"""The findings of the skew watch, as plain data: the results of computing served features again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Finding(StrEnum):
    """The result of computing a served value again."""

    SAME = "same"
    LATE_DATA = "late data"
    NOT_INDEXED = "not yet indexed"
    NON_DETERMINISTIC = "non-deterministic extractor"
    UNKNOWN = "unknown"
    CHANGED_DEFINITION = "changed definition"
    NO_OFFLINE_INDEX = "no offline index"
    TOO_MUCH_HISTORY = "too much history"
    FAILED = "recomputation failed"


UNCHECKED = frozenset({Finding.CHANGED_DEFINITION, Finding.NO_OFFLINE_INDEX, Finding.TOO_MUCH_HISTORY, Finding.FAILED})
"""The findings of values that couldn't be compared."""
MISMATCHES = frozenset(Finding) - UNCHECKED - {Finding.SAME}
"""The findings of values that differ from those that were served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountKey:
    """The values that are counted together: those of a feature, served by a commit of a branch within an hour."""

    branch: str
    commit: str
    feature: str
    hour: datetime
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A value that wasn't the same.

    Attributes:
        branch: The branch that served it.
        commit: The commit that served it.
        feature: The full name of the feature.
        finding: Why it differs, as far as that is known.
        served_at: The time of the answer.
        at: The time as of which the row was read.
        query: The number of the query among served features.
        served: The value that was served, as JSON.
        recomputed: The value that was computed again, as JSON; or the error.
        partition: The partition of the row's record.
        offset: The offset of the row's record.
        row: The number of the row in its query.
    """

    branch: str
    commit: str
    feature: str
    finding: Finding
    served_at: datetime
    at: datetime
    query: str
    served: str
    recomputed: str
    partition: int
    offset: int
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of a pass.

    Attributes:
        topic_id: The id of the topic of served features.
        since: The positions from which the pass began, by partition, as they were recorded.
        until: The positions up to which it has looked.
        counts: The numbers of values.
        samples: Some of the values that weren't the same.
    """

    topic_id: str
    since: Mapping[int, int]
    until: Mapping[int, int]
    counts: Counter[CountKey]
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCounts:
    """The counts of a feature of one commit."""

    feature: str
    commit: str
    counts: Mapping[Finding, int]
