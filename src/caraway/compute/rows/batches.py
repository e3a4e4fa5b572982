"""Batches of rows on their way from a source's payload to a dataset: raw columns, typed columns, errors."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pandas as pd

from caraway.compute.rows.calls import HERE, Conversion, without_nan
from caraway.compute.rows.column_casts import MISSING, ColumnCast
from caraway.dtypes.frames import to_series
from caraway.dtypes.types import DataType, RegexType, StringType, base_type, is_optional
from caraway.dtypes.values import is_null
from caraway.errors import InvalidInputError


class Stage(StrEnum):
    """The stage at which a record failed."""

    DECODE = "decode"
    ENVELOPE = "envelope"
    PREPROC = "preproc"
    WHERE = "where"
    CAST = "cast"
    CDC = "cdc"
    EXPECTATION = "expectation"


class LeftOut(StrEnum):
    """The reason why a record that is at no fault makes no change of the dataset."""

    WHERE = "where"
    SINCE = "since"
    UNTIL = "until"
    SAMPLE = "sample"
    # The source was bounded, and the record came after its end.
    CLOSED = "bounded_closed"
    # A message of change capture that changes no row, such as a heartbeat.
    NO_CHANGE = "no_change"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordError:
    """The reason why a row isn't in the dataset.

    `row` is its number in the batch, `field` is empty if the whole row is at fault.
    """

    row: int
    stage: Stage
    field: str
    message: str


@dataclass(slots=True)
class Typed:
    """A column in stored form (docs/inside/records.md)."""

    dtype: DataType
    stored: list[object]


@dataclass(slots=True)
class RowBatch:
    """The rows that are still to be converted.

    `numbers` are the rows' numbers in the payload; `raw` has their payload, `made` the results of preproc and `typed`
    the cast columns. `frame` is the payload for users' functions, made from `raw` if it is None. `is_text` is true if
    the cells are those of a text file: an empty cell is null then, except in a column of texts that aren't optional.
    """

    numbers: list[int]
    raw: dict[str, list[object]]
    frame: pd.DataFrame | None = None
    made: dict[str, list[object]] = field(default_factory=dict)
    typed: dict[str, Typed] = field(default_factory=dict)
    errors: list[RecordError] = field(default_factory=list)
    is_text: bool = False
    how: Conversion = HERE

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str) -> list[object]:
        """Return a column of the payload; `MISSING` stands for absent values."""
        found = self.raw.get(name)
        return [MISSING] * len(self) if found is None else found

    def cells(self, name: str, dtype: DataType) -> list[object]:
        """Return a column of the payload for a cast to a type."""
        found = self.column(name)
        if not self.is_text or keeps_empty_text(dtype):
            return found
        return [None if value == "" else value for value in found]

    def refuse(self, stage: Stage, name: str, messages: Mapping[int, str]) -> None:
        """Remove rows, by position, with an error for each."""
        if not messages:
            return
        self.errors += [
            RecordError(row=self.numbers[position], stage=stage, field=name, message=message)
            for position, message in sorted(messages.items())
        ]
        self.keep([position for position in range(len(self)) if position not in messages])

    def keep(self, positions: Sequence[int]) -> None:
        """Keep only the rows at these positions."""
        if len(positions) == len(self):
            return
        self.numbers = [self.numbers[p] for p in positions]
        if self.frame is not None:
            self.frame = self.frame.iloc[list(positions)].reset_index(drop=True)
        for columns in (self.raw, self.made):
            for name, values in columns.items():
                columns[name] = [values[p] for p in positions]
        for typed in self.typed.values():
            typed.stored = [typed.stored[p] for p in positions]

    def put(self, name: str, values: list[object], dtype: DataType | None = None) -> None:
        """Add a result of preproc over the payload: raw values, or stored ones of a type."""
        self.made[name] = values
        if dtype is None:
            self.typed.pop(name, None)
        else:
            self.typed[name] = Typed(dtype, values)

    def cast(self, name: str, dtype: DataType, *, stage: Stage) -> None:
        """Cast a column of the payload, or of preproc's results, unless it was cast to this type before."""
        if name in self.typed and self.typed[name].dtype == dtype:
            return
        done = ColumnCast(dtype, self.how.manner)(self.made[name] if name in self.made else self.cells(name, dtype))
        self.typed[name] = Typed(dtype, done.values)
        self.refuse(stage, name, done.errors)

    def seen_by_functions(self, declared: Mapping[str, Typed]) -> pd.DataFrame:
        """Return the payload, with the results of preproc so far and with `declared` columns, for a user's function."""
        frame = self._frame() if self.frame is None else self.frame.copy(deep=False)
        for name, values in self.made.items():
            typed = self.typed.get(name)
            frame[name] = to_series(typed.stored, typed.dtype) if typed else _plain(values)
        for name, typed in declared.items():
            frame[name] = to_series(typed.stored, typed.dtype)
        return frame

    def _frame(self) -> pd.DataFrame:
        shown = {name: _plain([None if v is MISSING else v for v in values]) for name, values in self.raw.items()}
        return pd.DataFrame(shown, index=pd.RangeIndex(len(self)))


def batch_of_frame(frame: pd.DataFrame) -> RowBatch:
    """Build a batch from a frame; each row has all columns."""
    frame = frame.reset_index(drop=True)
    raw = {str(name): without_nan(frame[name].tolist()) for name in frame.columns}
    return RowBatch(list(range(len(frame))), raw, frame)


def batch_of_records(records: Sequence[Mapping[str, object]], numbers: Iterable[int] | None = None) -> RowBatch:
    """Build a batch from self-describing records, which may lack members."""
    names: Collection[str] = dict.fromkeys(name for record in records for name in record)
    raw = {name: without_nan(record.get(name, MISSING) for record in records) for name in names}
    return RowBatch(list(range(len(records)) if numbers is None else numbers), raw)


def _plain(values: list[object]) -> "pd.Series[Any]":
    return pd.Series(values, dtype=object).infer_objects()


def member(value: Any, name: str) -> Any:
    """Return a member of a struct of the payload; None if the struct is null or lacks the member.

    Raises `InvalidInputError` if the value is no struct.
    """
    if value is MISSING or is_null(value):
        return None
    if isinstance(value, Mapping):
        return value.get(name)
    attributes = getattr(value, "__dict__", None)
    if attributes is None:
        raise InvalidInputError(f"{value!r} is {type(value).__name__}, which has no member {name}")
    return attributes.get(name)


def keeps_empty_text(dtype: DataType) -> bool:
    """Return whether an empty cell of a text file is an empty text in a field of a type, and not null."""
    return isinstance(base_type(dtype), (StringType, RegexType)) and not is_optional(dtype)
