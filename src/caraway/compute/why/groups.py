"""The value of an aggregation's row, from the inputs of its group: which of them count, and what they add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from caraway.compute.reference.aggregates.functions import Sample, compiled
from caraway.compute.reference.aggregates.windows import REST_US, SESSION_END_US
from caraway.compute.why.parts import Inputs
from caraway.compute.why.windows import Lives, bounds, lives
from caraway.dtypes.types import DataType
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.operators import Aggregate
from caraway.graph.schemas import Schema
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupRead:
    """The read of a group at a time.

    Attributes:
        operator: The aggregation.
        before: The schema of its input.
        inputs: The inputs of the group.
        at_us: The time of the read in microseconds.
        window: The begin and the end of the window that is part of the key; None if none is.
    """

    operator: Aggregate
    before: Schema
    inputs: Inputs
    at_us: int
    window: tuple[int, int] | None = None

    @cached_property
    def lives(self) -> Mapping[str, Lives]:
        """The lives of the inputs in the window of each aggregate, by its column."""
        if self.window is not None:
            own = self._in_window(self.window)
            return {spec.into: own for spec in self.operator.aggregates}
        parts, by_window, found = self.inputs.parts, {}, {}
        for spec in self.operator.aggregates:
            window = own_window(spec)
            if window not in by_window:
                by_window[window] = lives(window, parts.times, parts.ends, self.inputs.max_event_time_us)
            found[spec.into] = by_window[window]
        return found

    def places(self, column: str) -> Ints:
        """Return the places of the inputs that count in an aggregate."""
        return np.flatnonzero(self.lives[column].at(self.at_us))

    def span(self, spec: AggregateSpec) -> tuple[int | None, int]:
        """Return the event times that count in an aggregate; see `caraway.compute.why.windows.bounds`."""
        if self.window is not None:
            return self._span_of_key(self.window)
        return bounds(own_window(spec), self.at_us, self.inputs.max_event_time_us)

    def values(self, spec: AggregateSpec, places: Ints) -> list[Any]:
        """Return what inputs have in the column that an aggregate reads; nothing if it reads none."""
        return [] if spec.of is None else self.inputs.parts.column(spec.of, places)

    def value(self, spec: AggregateSpec) -> object:
        """Return the value of an aggregate, computed from the inputs that count in it."""
        places = self.places(spec.into)
        times = self.inputs.parts.times[places].tolist()
        values = self.values(spec, places) or [None] * len(times)
        samples = [Sample(time_us, value) for time_us, value in zip(times, values, strict=True)]
        return compiled(spec, self.type_of(spec))(samples, self.at_us)

    def type_of(self, spec: AggregateSpec) -> DataType | None:
        """Return the type of the column that an aggregate reads; None if it reads none."""
        return self.before.columns.get(spec.of or "")

    def changed_us(self) -> int | None:
        """Return the time of the last change of the group up to the read; None if it has no row yet."""
        found = [self.window[1]] if self.window is not None and self.window[1] <= self.at_us else []
        for lived in {id(lived): lived for lived in self.lives.values()}.values():
            ever = lived.ever
            for points in (lived.enters[ever], lived.leaves[ever]):
                past = points[points <= self.at_us]
                found += [int(past.max())] if len(past) else []
        return max(found, default=None)

    def counting(self, columns: Sequence[str]) -> Ints:
        """Return the places of the inputs that count in any of some aggregates."""
        flags = np.zeros(len(self.inputs.parts.times), np.bool_)
        for name in columns:
            flags |= self.lives[name].at(self.at_us)
        return np.flatnonzero(flags)

    def left_last(self, column: str) -> int | None:
        """Return the place of the input that has left the window of an aggregate last; None if none has."""
        lived = self.lives[column]
        gone = np.flatnonzero(lived.ever & (lived.leaves <= self.at_us))
        return None if not len(gone) else int(gone[np.argmax(lived.leaves[gone])])

    def comes_next(self, column: str) -> int | None:
        """Return the place of the first input that isn't in the window of an aggregate yet; None if there is none."""
        enters = self.lives[column].enters
        times = self.inputs.parts.times
        waiting = np.flatnonzero((enters > self.at_us) & (times > self._before_us()))
        return None if not len(waiting) else int(waiting[np.argmin(enters[waiting])])

    def _before_us(self) -> int:
        return np.iinfo(np.int64).min if self.window is None else self.window[0] - 1

    def _in_window(self, window: tuple[int, int]) -> Lives:
        """Return the lives of inputs in a window that is a key: rows stay for ever from its end on."""
        first, behind = self._span_of_key(window)
        times = self.inputs.parts.times
        within = (times >= first) & (times < behind)
        never = np.iinfo(np.int64).max
        # An input outside of the window never counts, so it gets a time of entering that is later than any time of a
        # read.
        return Lives(np.where(within, window[1], never), np.full(len(times), never))

    def _span_of_key(self, window: tuple[int, int]) -> tuple[int, int]:
        if isinstance(self.operator.window, SessionWindow):
            return window[0], window[1] - SESSION_END_US + REST_US
        return window


def own_window(spec: AggregateSpec) -> ContinuousWindow | HoppingWindow:
    """Return the window of an aggregate. Raises `TypeError` if the groupby has it."""
    if spec.window is None:
        raise TypeError(f"{spec.into} has no window of its own")
    return spec.window
