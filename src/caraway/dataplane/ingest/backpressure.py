"""Backpressure: rows are refused, or not read from a source, while what is computed from them is too far behind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from caraway.errors import CarawayError

# The seconds after which a refused client should try again. A backlog beyond the bounds takes minutes to process, so a
# client needn't try more often. Once the backlog is small enough, producers go on within this time.
RETRY_AFTER_S = 5


class BehindError(CarawayError):
    """The indexes or jobs of the datasets that a request feeds are too far behind; nothing of it was accepted."""

    code = "behind"
    retry_after_s = RETRY_AFTER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The lag beyond which rows are refused: more than `records` and, at the same time, more than `seconds`.

    With 0 for either nothing is refused.
    """

    records: int
    seconds: float

    def exceeded_by(self, records: int, seconds: float) -> bool:
        """Return whether a lag is beyond the bounds."""
        return 0 < self.records < records and 0 < self.seconds < seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """An index or job that is behind by more than the bounds."""

    name: str
    records: int
    seconds: float


class Backpressure:
    """Knows the topics to which nothing should be written now. Thread safe: readers see one assignment or the next.

    A check is a lookup in a dictionary, because it comes with each log request.
    """

    def __init__(self, bounds: Bounds) -> None:
        """Refuse nothing before the first `set`; `bounds` are named in errors."""
        self.bounds = bounds
        self._late: Mapping[str, Late] = {}

    def set(self, late: Mapping[str, Late]) -> None:
        """Replace the topics to which nothing should be written, each with the index or job that is behind."""
        self._late = late

    def is_late(self, topic: str) -> bool:
        """Return whether nothing should be written to a topic now."""
        return topic in self._late

    def check(self, topics: Iterable[str]) -> None:
        """Raise `BehindError` if nothing should be written to one of the topics now."""
        late = self._late
        if not late:
            return
        for topic in topics:
            found = late.get(topic)
            if found is not None:
                raise BehindError(
                    f"{found.name} is {found.records:,} records and {found.seconds:,.0f} s behind, more than "
                    f"server.max_lag_records ({self.bounds.records:,}) and server.max_lag_seconds "
                    f"({self.bounds.seconds:g}) allow; nothing of this request was accepted. Send it again after "
                    f"{RETRY_AFTER_S} s, and log at a lower rate if this comes again; `caraway status` shows the lag"
                )
