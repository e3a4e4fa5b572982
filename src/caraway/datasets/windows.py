"""Conversion of the windows that users write to the windows of specs."""

from typing import overload

from caraway.dtypes.durations import FOREVER, US_PER_SECOND
from caraway.dtypes.windows import Continuous, Hopping, Session, Tumbling
from caraway.errors import DefinitionError
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow


@overload
def window_spec(window: Tumbling | Hopping) -> HoppingWindow: ...
@overload
def window_spec(window: Continuous) -> ContinuousWindow: ...
@overload
def window_spec(window: Session) -> SessionWindow: ...
def window_spec(
    window: Continuous | Tumbling | Hopping | Session,
) -> ContinuousWindow | HoppingWindow | SessionWindow:
    """Return a window as specs have it: with lengths in microseconds, so that "1d" and "24h" are equal."""
    match window:
        case Continuous():
            return ContinuousWindow(length_us=window.duration_us)
        case Session():
            return SessionWindow(gap_us=_whole_us(window, window.gap_total_seconds()))
        case Tumbling() | Hopping():
            forever = window.duration == FOREVER
            return HoppingWindow(
                length_us=None if forever else _whole_us(window, window.duration_total_seconds()),
                stride_us=_whole_us(window, window.stride_total_seconds()),
                lookback_us=window.lookback_total_seconds() * US_PER_SECOND,
            )


def _whole_us(window: object, seconds: int) -> int:
    if seconds == 0:
        raise DefinitionError(f"{window}: windows are counted in whole seconds; give at least a second")
    return seconds * US_PER_SECOND
