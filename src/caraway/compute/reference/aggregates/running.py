"""Aggregates as values that follow the rows that enter and leave a window, for groups that are read at many times.

`functions.compiled` says what each value is, from all rows in the window; tests compare the two to the bit. Exact sums
and sorted positions keep no trace of a row that left, so the values of a group at n times take work in proportion to n
and to its rows.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Protocol

from caraway.compute.reference.aggregates.functions import Compute, Sample, compiled
from caraway.compute.reference.aggregates.numbers import number_of, rank, rounded, stored_total
from caraway.compute.reference.aggregates.windows import Life
from caraway.compute.reference.tables import identity
from caraway.dtypes.types import INT, DataType, DecimalType, FloatType, base_type
from caraway.dtypes.values import normal
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.process.exact_sums import Moments


class Running(Protocol):
    """An aggregate of the rows in a window; each row has a position, in order of time and then of arrival."""

    def enter(self, position: int, sample: Sample) -> None:
        """Count a row from now on."""

    def leave(self, position: int, sample: Sample) -> None:
        """Count a row no longer that entered before."""

    def value(self, at_us: int) -> object:
        """Return the aggregate as of a time."""


def running(spec: AggregateSpec, found: DataType | None) -> Callable[[], Running]:
    """Return what makes the running aggregate of an empty window; the arguments are those of `functions.compiled`."""
    of = found or INT
    match spec.function:
        case AggregateFunction.COUNT:
            return lambda: _Count(spec)
        case AggregateFunction.SUM | AggregateFunction.AVERAGE | AggregateFunction.STDDEV | AggregateFunction.VARIANCE:
            return lambda: _Numbers(spec, of)
        case AggregateFunction.MIN | AggregateFunction.MAX | AggregateFunction.QUANTILE:
            return lambda: _Sorted(spec, of)
        case AggregateFunction.DISTINCT | AggregateFunction.FIRST_K | AggregateFunction.LAST_K:
            return lambda: _Listed(spec)
        case AggregateFunction.EXP_DECAY_SUM:
            # Each term is computed and rounded for the time of the read, so no term can be reused by a later read.
            compute = compiled(spec, found)
            return lambda: _Remembered(compute)


def values(samples: Sequence[tuple[Life, Sample]], state: Running, times_us: Sequence[int]) -> Iterator[object]:
    """Yield the values of an aggregate that hasn't counted anything yet at times, which ascend."""
    lives = [(life, position, sample) for position, (life, sample) in enumerate(samples)]
    # A row that left the window before the first time is in no value.
    lives = [item for item in lives if (leave_us := item[0].leave_us) is None or leave_us > times_us[0]]
    entering = sorted((life.enter_us, position, sample) for life, position, sample in lives)
    leaving = sorted((life.leave_us, position, sample) for life, position, sample in lives if life.leave_us is not None)
    entered = left = 0
    for at_us in times_us:
        while entered < len(entering) and entering[entered][0] <= at_us:
            state.enter(*entering[entered][1:])
            entered += 1
        while left < len(leaving) and leaving[left][0] <= at_us:
            state.leave(*leaving[left][1:])
            left += 1
        yield state.value(at_us)


class _Count:
    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._rows = 0
        self._values: Counter[object] = Counter()

    def enter(self, _position: int, sample: Sample) -> None:
        self._add(sample, 1)

    def leave(self, _position: int, sample: Sample) -> None:
        self._add(sample, -1)

    def value(self, _at_us: int) -> object:
        return len(self._values) if self._spec.unique else self._rows

    def _add(self, sample: Sample, number: int) -> None:
        if self._spec.dropnull and sample.value is None:
            return
        self._rows += number
        if self._spec.unique:
            key = identity(sample.value)
            self._values[key] += number
            if not self._values[key]:
                del self._values[key]


class _Numbers:
    """A sum, mean, standard deviation or variance, from exact sums of the values and of their squares."""

    def __init__(self, spec: AggregateSpec, of: DataType) -> None:
        self._spec, self._of = spec, of
        dtype = base_type(of)
        self._unit = 10**dtype.scale if isinstance(dtype, DecimalType) else 1
        self._is_float = isinstance(dtype, FloatType)
        self._number = number_of(of)
        self._moments = Moments()

    def enter(self, _position: int, sample: Sample) -> None:
        if sample.value is not None:
            self._add(self._moments, sample.value)

    def leave(self, _position: int, sample: Sample) -> None:
        if sample.value is not None:
            self._add(one := Moments(), sample.value)
            self._moments.subtract(one)

    def value(self, _at_us: int) -> object:
        moments = self._moments
        if self._spec.function is AggregateFunction.SUM:
            exact = Fraction(moments.total, self._unit << -moments.exponent)
            return stored_total(exact if math.isfinite(sum_ := moments.sum()) else sum_, self._of, self._spec.into)
        if not moments.count:
            return self._spec.default
        match self._spec.function:
            case AggregateFunction.AVERAGE:
                return moments.mean(self._unit)
            case AggregateFunction.STDDEV:
                return moments.stddev(self._unit)
            case _:
                return moments.variance(self._unit)

    def _add(self, moments: Moments, value: Any) -> None:
        if self._is_float:
            moments.add_float(value)
        else:
            moments.add_ints([int(self._number(value) * self._unit)])


class _Sorted:
    """A minimum, maximum or quantile, from the sorted values."""

    def __init__(self, spec: AggregateSpec, of: DataType) -> None:
        self._spec = spec
        self._number = number_of(of)
        self._ranks: list[tuple[Any, Any]] = []

    def enter(self, _position: int, sample: Sample) -> None:
        if sample.value is not None:
            insort(self._ranks, self._ranked(sample.value), key=_rank_of)

    def leave(self, _position: int, sample: Sample) -> None:
        if sample.value is not None:
            del self._ranks[bisect_left(self._ranks, _rank_of(self._ranked(sample.value)), key=_rank_of)]

    def value(self, _at_us: int) -> object:
        if not self._ranks:
            return self._spec.default
        match self._spec.function:
            case AggregateFunction.MIN:
                found = self._ranks[0][1]
            case AggregateFunction.MAX:
                found = self._ranks[-1][1]
            case _:
                count = len(self._ranks)
                place = min(count - 1, math.floor((self._spec.p or 0.0) * count))
                return rounded(self._number(self._ranks[place][1])) + 0.0
        return found + 0.0 if isinstance(found, float) else found

    def _ranked(self, value: Any) -> tuple[Any, Any]:
        return rank(self._number(value)), value


def _rank_of(item: tuple[Any, Any]) -> Any:
    return item[0]


class _Listed:
    """A list of the first or last values, or of each value once."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._once = spec.dedup or spec.function is AggregateFunction.DISTINCT
        self._end = -1 if spec.function is AggregateFunction.LAST_K else 0
        # The positions of the listed rows, in ascending order. If equal values are listed once, only the position of
        # the first of the equal rows is here, or that of the last one for `LAST_K`.
        self._listed: list[int] = []
        self._values: dict[int, Any] = {}
        self._equal: dict[object, list[int]] = {}

    def enter(self, position: int, sample: Sample) -> None:
        if not (self._spec.dropnull and sample.value is None):
            self._values[position] = normal(sample.value) if self._once else sample.value
            self._change(position, sample.value, insort)

    def leave(self, position: int, sample: Sample) -> None:
        if not (self._spec.dropnull and sample.value is None):
            self._change(position, sample.value, _remove)
            del self._values[position]

    def value(self, _at_us: int) -> object:
        listed = self._listed
        match self._spec.function:
            case AggregateFunction.LAST_K:
                listed = listed[-(self._spec.limit or len(listed)) :][::-1]
            case AggregateFunction.FIRST_K:
                listed = listed[: self._spec.limit]
        return [self._values[position] for position in listed]

    def _change(self, position: int, value: Any, change: Callable[[list[int], int], None]) -> None:
        if not self._once:
            change(self._listed, position)
            return
        equal = self._equal.setdefault(identity(value), [])
        before = equal[self._end] if equal else None
        change(equal, position)
        after = equal[self._end] if equal else None
        if before != after:
            if before is not None:
                _remove(self._listed, before)
            if after is not None:
                insort(self._listed, after)
        if not equal:
            del self._equal[identity(value)]


def _remove(positions: list[int], position: int) -> None:
    del positions[bisect_left(positions, position)]


class _Remembered:
    """The rows themselves, of which each value is computed."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._rows: dict[int, Sample] = {}

    def enter(self, position: int, sample: Sample) -> None:
        self._rows[position] = sample

    def leave(self, position: int, _sample: Sample) -> None:
        del self._rows[position]

    def value(self, at_us: int) -> object:
        return self._compute([sample for _, sample in sorted(self._rows.items())], at_us)
