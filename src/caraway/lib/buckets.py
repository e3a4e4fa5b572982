"""`bucketize`, which returns the latest window that is over at some time."""

from datetime import datetime

from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.instants import instant_us, to_datetime
from caraway.dtypes.structs import Window
from caraway.dtypes.windows import Hopping, Tumbling
from caraway.errors import DefinitionError


def bucketize(timestamp: datetime, window: str | tuple[str, str] | Tumbling | Hopping) -> Window:
    """Return the latest window, aligned to the epoch, that ends at `timestamp` or before.

    Args:
        timestamp: The time; UTC if it has no zone.
        window: A duration for adjoining windows, or (duration, stride), or a `Tumbling` or `Hopping`.

    Raises:
        DefinitionError: `window` is none of these.
    """
    match window:
        case Tumbling() | Hopping():
            buckets: Tumbling | Hopping = window
        case str():
            buckets = Tumbling(window)
        case (str(), str()):
            buckets = Hopping(*window)
        case _:
            raise DefinitionError(
                f"bucketize: a window is a duration, (duration, stride), Tumbling or Hopping, not {window!r}"
            )
    length = buckets.duration_total_seconds() * US_PER_SECOND
    stride = buckets.stride_total_seconds() * US_PER_SECOND
    # Windows begin at the multiples of the stride since the epoch, and end one length later. The window that is
    # returned has the latest end that isn't after the timestamp.
    end = (instant_us(timestamp) - length) // stride * stride + length
    return Window(begin=to_datetime(end - length), end=to_datetime(end))
