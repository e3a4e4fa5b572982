"""Windows of aggregates, as plain data. All lengths are microseconds and multiples of a second."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousWindow:
    """The last `length_us` before the time of the read; None: everything until then."""

    length_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoppingWindow:
    """Buckets of `length_us` (None: from the beginning) that end every `stride_us`, aligned to the epoch.

    A tumbling window is one whose stride is its length. Buckets that end within `lookback_us` before the frontier, the
    greatest event time seen, aren't shown yet.
    """

    length_us: int | None
    stride_us: int
    lookback_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow:
    """Runs of rows with at most `gap_us` between one and the next."""

    gap_us: int


Window = ContinuousWindow | HoppingWindow | SessionWindow
