"""Windows of aggregates, as plain data. All lengths are microseconds and multiples of a second."""

from dataclasses import dataclass

from caraway.dtypes.durations import print_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousWindow:
    """The last `length_us` before the time of the read; None: everything until then."""

    length_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoppingWindow:
    """Buckets of `length_us` (None: from the beginning) that end every `stride_us`, aligned to the epoch.

    A tumbling window is one whose stride is its length. Buckets that end within `lookback_us` before the max event
    time, the greatest event time seen, aren't shown yet.
    """

    length_us: int | None
    stride_us: int
    lookback_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow:
    """Runs of rows with at most `gap_us` between one and the next."""

    gap_us: int


Window = ContinuousWindow | HoppingWindow | SessionWindow


def print_window(window: Window) -> str:
    """Return the spelling of a window in a user's code."""
    match window:
        case ContinuousWindow():
            return f"Continuous({_length(window.length_us)})"
        case HoppingWindow():
            ahead = "" if window.lookback_us == 0 else f", lookback={_length(window.lookback_us)}"
            if window.length_us == window.stride_us:
                return f"Tumbling({_length(window.length_us)}{ahead})"
            return f"Hopping({_length(window.length_us)}, {_length(window.stride_us)}{ahead})"
        case SessionWindow():
            return f"Session({_length(window.gap_us)})"


def _length(length_us: int | None) -> str:
    return '"forever"' if length_us is None else f'"{print_duration(length_us)}"'
