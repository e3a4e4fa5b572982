"""Lookup steps: from key columns to the fields of a dataset, in one read of the index."""

from collections.abc import Callable, Sequence

from caraway.dtypes.types import base_type
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.graph.specs import IndexSpec
from caraway.plan.model import IndexPlan
from caraway.query.batch import Batch, Run
from caraway.query.model import Instants, KeyPart, LookupStep, Reader
from caraway.topics.codec import RecordCodec

Convert = Callable[[object], object]
# Below this many rows it costs more to look for equal keys than it saves.
MIN_ROWS_TO_SHARE = 8


class KeyedReader:
    """Reads a dataset by the values of its keys instead of their bytes."""

    __slots__ = ("_absent", "_encode", "_plan", "_reader")

    def __init__(self, plan: IndexPlan, reader: Reader) -> None:
        self._plan = plan
        self._reader = reader
        self._encode = RecordCodec(plan.schema).encode_key
        # What a key that can't exist gives: an aggregate has its own idea of nothing.
        self._absent = {
            aggregate.into: cast(base_type(aggregate.dtype))(aggregate.default)
            for aggregate in plan.aggregates
            if aggregate.default is not None
        }

    def read(
        self, keys: Sequence[Sequence[object]], at: Instants, fields: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` (a column for each key field, stored form); a key with a null in it isn't found."""
        encode = self._encode
        present = [row for row, parts in enumerate(zip(*keys, strict=True)) if None not in parts]
        rows = len(keys[0])
        if len(present) == rows:
            encoded = [encode(parts) or b"" for parts in zip(*keys, strict=True)]
            return self._read(encoded, at, fields)
        encoded = [encode([column[row] for column in keys]) or b"" for row in present]
        instants = at if isinstance(at, int) else [at[row] for row in present]
        some, some_found = self._read(encoded, instants, fields) if encoded else ([[] for _ in fields], [])
        columns: list[list[object]] = [[self._absent.get(field)] * rows for field in fields]
        found = [False] * rows
        for position, row in enumerate(present):
            found[row] = some_found[position]
            for column, values in zip(columns, some, strict=True):
                column[row] = values[position]
        return columns, found

    def _read(
        self, keys: Sequence[bytes], at: Instants, fields: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        if len(keys) < MIN_ROWS_TO_SHARE or not isinstance(at, int):
            return self._reader.read(self._plan, keys, at, fields)
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        if len(places) == len(keys):
            return self._reader.read(self._plan, keys, at, fields)
        columns, found = self._reader.read(self._plan, list(places), at, fields)
        order = [places[key] for key in keys]
        return [[column[place] for place in order] for column in columns], [found[place] for place in order]


def compile_lookup(step: LookupStep, reader: Reader) -> Run:
    """Make the function that adds the columns of a lookup step to a batch."""
    keyed = KeyedReader(step.index, reader)
    fields = list(dict.fromkeys(feature.field for feature in step.features))
    keys = [(part.column, key_cast(part)) for part in step.keys]
    outputs = [(fields.index(feature.field), feature.column, feature.default) for feature in step.features]
    dataset, indexed = step.index.dataset, step.indexed

    def run(batch: Batch) -> None:
        require_index(dataset, indexed, past=batch.past)
        columns = batch.columns
        values = [
            columns[name] if convert is None else _converted(name, convert, columns[name]) for name, convert in keys
        ]
        found_columns, _ = keyed.read(values, batch.at, fields)
        for position, name, default in outputs:
            column = found_columns[position]
            columns[name] = column if default is None else [default if value is None else value for value in column]

    return run


def require_index(dataset: str, indexed: IndexSpec, *, past: bool) -> None:
    """Check that a dataset has the index that a read needs: offline for a time chosen by the caller, else online.

    Raises:
        InvalidInputError: It hasn't.
    """
    if not (indexed.offline if past else indexed.online):
        kind = "offline" if past else "online"
        when = "at a time in the past" if past else "at now"
        raise InvalidInputError(
            f"dataset {dataset} has no {kind} index, which a read {when} needs; declare @index({kind}=True)"
        )


def key_cast(part: KeyPart) -> Convert | None:
    """Return what turns a feature's values into those of the key field; None where they are alike already."""
    target = base_type(part.key_dtype)
    if part.dtype is not None and base_type(part.dtype) == target:
        return None
    convert = cast(target)
    return lambda value: None if value is None else convert(value)


def _converted(name: str, convert: Convert, values: Sequence[object]) -> list[object]:
    converted = []
    for row, value in enumerate(values):
        try:
            converted.append(convert(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}, row {row}, can't be a key: {error}") from None
    return converted
