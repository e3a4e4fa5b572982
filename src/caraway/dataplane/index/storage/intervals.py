"""The event times in a window when it is read, and the times at which an aggregate input enters and leaves it.

An *interval* is the first and the last of these times, both included. An aggregate input that was ended counts in an
interval if its end is after the interval's last time.
"""

from caraway.dataplane.index.storage.keys import FIRST_TIME_US
from caraway.graph.plan.model import IndexPlan
from caraway.graph.windows import ContinuousWindow, HoppingWindow

# A window counts a row if the row's age at the time of the read, cut to whole seconds, is at most the window's length.
# So a row leaves a window this much later than the row's time plus the window's length.
WINDOW_REST_US = 1_000_000

OwnWindow = ContinuousWindow | HoppingWindow
Interval = tuple[int, int]

NOTHING: Interval = FIRST_TIME_US, FIRST_TIME_US - 1


def own_windows(plan: IndexPlan) -> tuple[OwnWindow, ...]:
    """Return the windows of a plan's aggregates; none if the groupby has a window."""
    return tuple(dict.fromkeys(spec.window for spec in plan.aggregates if spec.window is not None and not plan.window))


def has_max_event_time(plan: IndexPlan) -> bool:
    """Return whether a plan has windows that close by event time, so that the index keeps the max event time."""
    return any(isinstance(window, HoppingWindow) for window in (plan.window, *own_windows(plan)))


def is_divisible(plan: IndexPlan) -> bool:
    """Return whether the rows of a key depend on no records of other keys.

    Discrete windows close by the greatest event time of all records, and windows that are keys are found among those of
    all records.
    """
    return plan.window is None and not has_max_event_time(plan) and bool(plan.schema.keys)


def lookback_us(plan: IndexPlan) -> int:
    """Return the lookback of a plan's discrete windows, which is the same for all of them; 0 if there are none."""
    windows = (plan.window, *own_windows(plan))
    return max((window.lookback_us for window in windows if isinstance(window, HoppingWindow)), default=0)


def interval_at(window: OwnWindow, at_us: int, closing_us: int | None) -> Interval:
    """Return the interval of a window that is read at a time, given the closing time."""
    length_us = window.length_us
    # A read calls this function for each window of each key, so it has no `match` statement, which would take three
    # times as long.
    if isinstance(window, ContinuousWindow):
        return FIRST_TIME_US if length_us is None else max(FIRST_TIME_US, at_us - length_us - WINDOW_REST_US + 1), at_us
    if closing_us is None:
        return NOTHING
    end_us = last_end(window, min(at_us, closing_us - window.lookback_us))
    return FIRST_TIME_US if length_us is None else max(FIRST_TIME_US, end_us - length_us), end_us - 1


def next_end(window: HoppingWindow, time_us: int) -> int:
    """Return the first end of a bucket after a time: `n * stride + length`; a multiple of the stride if unbounded."""
    return last_end(window, time_us) + window.stride_us


def last_end(window: HoppingWindow, time_us: int) -> int:
    """Return the last end of a bucket at or before a time."""
    offset_us = window.length_us or 0
    return (time_us - offset_us) // window.stride_us * window.stride_us + offset_us


def life(window: OwnWindow, time_us: int, end_us: int | None) -> tuple[int, int | None]:
    """Return when an aggregate input that ends at `end_us` (None: never) enters and leaves the window (None: never)."""
    if isinstance(window, ContinuousWindow):
        enter_us = time_us
        leave_us = None if window.length_us is None else time_us + window.length_us + WINDOW_REST_US
        ends_us = end_us
    else:
        enter_us = next_end(window, time_us)
        leave_us = None if window.length_us is None else next_end(window, time_us + window.length_us)
        ends_us = None if end_us is None else next_end(window, end_us)
    if ends_us is not None and (leave_us is None or ends_us < leave_us):
        leave_us = ends_us
    return enter_us, leave_us


def latest(*times: int | None) -> int | None:
    """Return the greatest of some times, leaving out None; None if there is no time."""
    return max((time_us for time_us in times if time_us is not None), default=None)


def ever_counts(windows: tuple[OwnWindow, ...], time_us: int, end_us: int) -> bool:
    """Return whether an aggregate input is in one of the windows before its end."""
    for window in windows:
        enter_us, leave_us = life(window, time_us, end_us)
        if leave_us is None or enter_us < leave_us:
            return True
    return False
