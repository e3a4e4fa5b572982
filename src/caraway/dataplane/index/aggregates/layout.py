"""The layout of an index's tiles: which partial aggregates its plan needs, and how rows are added to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from caraway.dataplane.index.aggregates.columns import (
    Family,
    Read,
    family_of,
    float_reader,
    identity_reader,
    number_reader,
    restorer,
)
from caraway.dataplane.index.aggregates.decay import DecayedSum
from caraway.dataplane.index.aggregates.partials import AggregatedColumn, ColumnPartial, Extra, Partial
from caraway.dataplane.index.aggregates.values import Values, ValuesSpec
from caraway.dataplane.topics.codec import Record
from caraway.dtypes.types import DATETIME, DataType, type_name
from caraway.errors import InvalidInputError
from caraway.graph.aggregates import TRAITS, AggregateSpec, Keeps, ValueUse, kept_for
from caraway.graph.plan.model import IndexPlan

# An aggregate input: event time in microseconds, values of the aggregated columns, rank among inputs of equal times.
AggregateInput = tuple[int, tuple[object, ...], bytes]

# An aggregate for which an index keeps one of these (`Keeps`) is computed from a column's sums, its bounds (least and
# greatest value) and the number of its values that aren't null.
_OF_NUMBERS = {Keeps.SUMS, Keeps.SQUARES, Keeps.BOUNDS}


@dataclass(frozen=True, slots=True)
class ExtraColumn:
    """An extra that tiles keep beyond sums: the column's position in the row, its reader and its constructors.

    `make` returns an extra for tiles, with bounded size; `make_whole` returns one for a read, which takes all values.
    """

    position: int
    read: Read
    values: ValuesSpec | None
    make: Callable[[], Extra]
    make_whole: Callable[[], Extra]


class Layout:
    """The columns and extras that the tiles of an index keep.

    `columns` are kept as sums and bounds. `extras` are kept beside them: the values of a column, found by its name in
    `values_of`, or its decayed sum, found by name and half-life in `decayed_of`.
    """

    __slots__ = (
        "_most_values",
        "_readers",
        "_timed",
        "columns",
        "decayed_of",
        "extras",
        "plain_of",
        "types",
        "values_of",
    )

    def __init__(self, plan: IndexPlan, most_values: int) -> None:
        """Derive the layout from a plan's aggregates; a tile keeps up to `most_values` distinct values of a column."""
        self._most_values = most_values
        positions = {column.name: position for position, column in enumerate(plan.schema.columns)}
        self.types: dict[str, DataType] = {column.name: column.dtype for column in plan.schema.columns}
        # If the row has no column for the timestamp, the record's time is read instead, as if it were the last column.
        timestamp = plan.schema.timestamp
        self._timed = timestamp not in positions and any(spec.of == timestamp for spec in plan.aggregates)
        if self._timed:
            positions[timestamp] = len(positions)
            self.types[timestamp] = DATETIME
        used: dict[str, list[AggregateSpec]] = {}
        for spec in plan.aggregates:
            if spec.of is not None and reads_values(spec):
                used.setdefault(spec.of, []).append(spec)
        self.columns = tuple(
            _column(name, self.types[name], positions[name], specs)
            for name, specs in used.items()
            if any(is_plain(spec) for spec in specs)
        )
        self.plain_of = {column.name: position for position, column in enumerate(self.columns)}
        extras: list[ExtraColumn] = []
        self.values_of: dict[str, int] = {}
        self.decayed_of: dict[tuple[str, int], int] = {}
        for name, specs in used.items():
            self._add_extras(extras, name, positions[name], specs)
        self.extras = tuple(extras)
        numbers = [(column.position, number_reader(column.name, self.types[column.name])) for column in self.columns]
        self._readers = (*numbers, *((column.position, column.read) for column in self.extras))

    def _add_extras(self, extras: list[ExtraColumn], name: str, position: int, specs: Sequence[AggregateSpec]) -> None:
        dtype, most = self.types[name], self._most_values
        if any(keeps_values(spec) for spec in specs):
            kept = _values_spec(name, dtype, specs)
            self.values_of[name] = len(extras)
            read = identity_reader(name, dtype)
            kept_values = ExtraColumn(position, read, kept, lambda: Values(kept, most), lambda: Values(kept, None))
            extras.append(kept_values)
        for half_life_us in dict.fromkeys(spec.half_life_us for spec in specs):
            if half_life_us is not None:
                self.decayed_of[name, half_life_us] = len(extras)
                extras.append(_decayed(name, dtype, position, half_life_us))

    def values(self, record: Record) -> tuple[object, ...]:
        """Return the values of the aggregated columns, decimals in their smallest units, then those of the extras.

        The record must have a row.

        Raises:
            InvalidInputError: A value isn't of its column's type.
        """
        row: Any = record.row
        if self._timed:
            row = [*row, record.time]
        return tuple([read(row[position]) for position, read in self._readers])

    def values_of_rows(self, rows: Sequence[Any], times: Sequence[int]) -> list[tuple[object, ...]]:
        """Return what `values` returns for each of several records, given by their rows and times.

        Raises:
            InvalidInputError: A value isn't of its column's type.
        """
        columns = self.columns_of_rows(rows, times)
        return list(zip(*columns, strict=True)) if columns else [()] * len(rows)

    def columns_of_rows(self, rows: Sequence[Any], times: Sequence[int]) -> list[list[object]]:
        """Return what `values_of_rows` returns, as columns.

        Raises:
            InvalidInputError: A value isn't of its column's type.
        """
        if self._timed:
            rows = [[*row, time_us] for row, time_us in zip(rows, times, strict=True)]
        return [[read(row[position]) for row in rows] for position, read in self._readers]

    def values_spec(self, position: int) -> ValuesSpec:
        """Return the settings by which an extra keeps the values of its column."""
        spec = self.extras[position].values
        if spec is None:
            raise TypeError("the extra keeps no values")
        return spec

    def empty(self) -> Partial:
        """Return the partial aggregate of no aggregate inputs."""
        return Partial([ColumnPartial() for _ in self.columns], [extra.make() for extra in self.extras])

    def clone(self, partial: Partial) -> Partial:
        """Return an equal partial that shares nothing with `partial`."""
        copy = self.empty()
        copy.merge(partial)
        copy.flags = partial.flags
        return copy

    def total(self, needed: frozenset[int]) -> Partial:
        """Return the partial aggregate of no aggregate inputs, for a read that needs only some of the extras."""
        extras = [extra.make_whole() if position in needed else None for position, extra in enumerate(self.extras)]
        return Partial([ColumnPartial() for _ in self.columns], extras)

    def partial(self, aggregate_inputs: Sequence[AggregateInput]) -> Partial:
        """Return the partial aggregate of `aggregate_inputs`."""
        partial = self.empty()
        self.add(partial, aggregate_inputs)
        return partial

    def add(self, partial: Partial, aggregate_inputs: Sequence[AggregateInput]) -> None:
        """Add `aggregate_inputs`, at least one, to a partial aggregate."""
        if len(aggregate_inputs) == 1:
            self._add_one(partial, aggregate_inputs[0])
            return
        times, values, orders = zip(*aggregate_inputs, strict=True)
        self.add_columns(partial, times, list(zip(*values, strict=True)), orders)

    def add_columns(
        self, partial: Partial, times: Sequence[int], columns: Sequence[Sequence[object]], orders: Sequence[bytes]
    ) -> None:
        """Add aggregate inputs, at least one, by their times, the columns of their values (see `values`) and ranks.

        Without extras the ranks aren't needed.
        """
        partial.count += len(times)
        low, high = min(times), max(times)
        partial.low, partial.high = min(low, partial.low), max(high, partial.high)
        for column, of_column, values in zip(self.columns, partial.columns, columns, strict=False):
            there = [value for value in values if value is not None] if None in values else values
            if there:
                of_column.add(column, there)
        for extra, values in zip(partial.extras, columns[len(self.columns) :], strict=True):
            if extra is not None:
                extra.add(zip(times, values, orders, strict=True))  # type: ignore[arg-type]

    def _add_one(self, partial: Partial, aggregate_input: AggregateInput) -> None:
        """Add one aggregate input: with many keys most batches have one of each key."""
        time_us, values, order = aggregate_input
        partial.count += 1
        partial.low = min(partial.low, time_us)
        partial.high = max(partial.high, time_us)
        for column, of_column, value in zip(self.columns, partial.columns, values, strict=False):
            if value is not None:
                of_column.add_one(column, value)
        for position, extra in enumerate(partial.extras, start=len(self.columns)):
            if extra is not None:
                extra.add([(time_us, values[position], order)])  # type: ignore[list-item]


def reads_values(spec: AggregateSpec) -> bool:
    """Return whether a function reads its column; a count does so only for distinct values or to leave out nulls."""
    return kept_for(spec) is not Keeps.ROWS or spec.dropnull


def keeps_values(spec: AggregateSpec) -> bool:
    """Return whether a function needs the distinct values of its column; lists with repeats need raw entries."""
    return kept_for(spec) is Keeps.VALUES


def is_plain(spec: AggregateSpec) -> bool:
    """Return whether a function needs sums, bounds or the number of values that aren't null."""
    return kept_for(spec) in _OF_NUMBERS or (spec.dropnull and not keeps_values(spec))


def _column(name: str, dtype: DataType, position: int, specs: Sequence[AggregateSpec]) -> AggregatedColumn:
    family, unit = family_of(dtype)
    used = {kept_for(spec) for spec in specs}
    if family is Family.ANY and used & _OF_NUMBERS:
        raise InvalidInputError(f"column {name} of type {type_name(dtype)} has no numbers to aggregate")
    return AggregatedColumn(
        name=name,
        position=position,
        family=family,
        unit=unit,
        sums=bool(used & {Keeps.SUMS, Keeps.SQUARES}),
        squares=Keeps.SQUARES in used,
        extremes=Keeps.BOUNDS in used,
    )


def _values_spec(name: str, dtype: DataType, specs: Sequence[AggregateSpec]) -> ValuesSpec:
    uses = {TRAITS[spec.function].values for spec in specs if keeps_values(spec)}
    return ValuesSpec(
        firsts=ValueUse.FIRSTS in uses,
        lasts=ValueUse.LASTS in uses,
        counted=ValueUse.COUNTED in uses,
        number=float_reader(name, dtype) if ValueUse.NUMBERS in uses else None,
        restore=restorer(dtype),
    )


def _decayed(name: str, dtype: DataType, position: int, half_life_us: int) -> ExtraColumn:
    def make() -> DecayedSum:
        return DecayedSum(half_life_us)

    return ExtraColumn(position, float_reader(name, dtype), None, make, make)
