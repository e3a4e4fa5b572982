"""Windows of time for aggregates: value objects, which are checked when they are made."""

from dataclasses import dataclass

from caraway.dtypes.durations import FOREVER, US_PER_SECOND, parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError


@dataclass(frozen=True)
class Continuous:
    """The last `duration` up to the moment of the read, by ages in whole seconds, or all time with "forever"."""

    duration: str

    def __post_init__(self) -> None:
        if self.duration != FOREVER and parse_duration(self.duration) == 0:
            raise DefinitionError('Continuous: a window of "0s" holds nothing; give a longer duration or "forever"')

    @property
    def duration_us(self) -> int | None:
        """Length in microseconds; None for "forever"."""
        return None if self.duration == FOREVER else parse_duration(self.duration)

    def signature(self) -> str:
        """Return the window in the user's spelling."""
        return f"sliding-{self.duration}"


@dataclass(frozen=True)
class Tumbling:
    """Adjoining buckets of length `duration`, aligned to the epoch."""

    duration: str
    lookback: str | None = "0s"

    def __post_init__(self) -> None:
        _positive_us("Tumbling", "duration", self.duration)
        _lookback_us("Tumbling", self.lookback)

    def signature(self) -> str:
        """Return the window in the user's spelling."""
        return f"tumbling-{self.duration}"

    def duration_total_seconds(self) -> int:
        """Return the length in whole seconds."""
        return parse_duration(self.duration) // US_PER_SECOND

    def stride_total_seconds(self) -> int:
        """Return the distance of two buckets in whole seconds, which is their length."""
        return self.duration_total_seconds()

    def lookback_total_seconds(self) -> int:
        """Return in whole seconds how long results are withheld."""
        return _lookback_us("Tumbling", self.lookback) // US_PER_SECOND


@dataclass(frozen=True)
class Hopping:
    """Buckets of length `duration` (or "forever") that begin every `stride`, aligned to the epoch."""

    duration: str
    stride: str
    lookback: str | None = "0s"

    def __post_init__(self) -> None:
        stride = _positive_us("Hopping", "stride", self.stride)
        _lookback_us("Hopping", self.lookback)
        if self.duration != FOREVER and stride > _positive_us("Hopping", "duration", self.duration):
            raise DefinitionError(
                f'Hopping: stride "{self.stride}" is longer than duration "{self.duration}": rows between would be lost'
            )

    def signature(self) -> str:
        """Return the window in the user's spelling."""
        return f"hopping-{self.duration}-{self.stride}"

    def duration_total_seconds(self) -> int:
        """Return the length in whole seconds. Raises `DefinitionError` if the window is "forever"."""
        if self.duration == FOREVER:
            raise DefinitionError('Hopping: a window of "forever" has no length in seconds')
        return parse_duration(self.duration) // US_PER_SECOND

    def stride_total_seconds(self) -> int:
        """Return the distance of two buckets in whole seconds."""
        return parse_duration(self.stride) // US_PER_SECOND

    def lookback_total_seconds(self) -> int:
        """Return in whole seconds how long results are withheld."""
        return _lookback_us("Hopping", self.lookback) // US_PER_SECOND


@dataclass(frozen=True)
class Session:
    """Rows that follow each other within `gap`."""

    gap: str

    def __post_init__(self) -> None:
        _positive_us("Session", "gap", self.gap)

    def signature(self) -> str:
        """Return the window in the user's spelling."""
        return f"session-{self.gap}"

    def gap_total_seconds(self) -> int:
        """Return the gap in whole seconds."""
        return parse_duration(self.gap) // US_PER_SECOND


def _positive_us(window: str, parameter: str, text: str) -> int:
    if text == FOREVER:
        raise DefinitionError(f'{window}: {parameter} can\'t be "forever"; give a duration such as "1d"')
    length = _parsed(window, parameter, text)
    if length == 0:
        raise DefinitionError(f'{window}: {parameter} "{text}" is zero; give a longer duration')
    return length


def _lookback_us(window: str, text: str | None) -> int:
    return 0 if text is None else _parsed(window, "lookback", text)


def _parsed(window: str, parameter: str, text: str) -> int:
    try:
        return parse_duration(text)
    except (DefinitionError, DefinitionTypeError) as error:
        raise DefinitionError(f"{window}: bad {parameter}: {error}") from None
