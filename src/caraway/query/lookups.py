"""Lookup steps: from key columns to the fields of a dataset, in one read of the index."""

from collections.abc import Callable, Sequence
from itertools import chain

from caraway.dtypes.types import DataType, base_type, strip_optional
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.graph.specs import IndexSpec
from caraway.plan.model import IndexPlan
from caraway.query.batch import Batch, Run
from caraway.query.model import Instants, KeyPart, LookedUp, LookupStep, Reader
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
    keys = [(part.column, key_cast(part, elementwise=step.elementwise)) for part in step.keys]
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

    return _elementwise(step, keyed, fields) if step.elementwise else run


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


def key_cast(part: KeyPart, *, elementwise: bool = False) -> Convert | None:
    """Return what turns a feature's values into those of the key field; None where they are alike already."""
    target = base_type(part.key_dtype)
    if part.dtype is not None:
        source: DataType = strip_optional(part.dtype)
        if elementwise and hasattr(source, "of"):
            source = source.of
        if base_type(source) == target:
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


def _elementwise(step: LookupStep, keyed: KeyedReader, fields: list[str]) -> Run:
    """Make the lookup over lists of keys: all elements of all rows are read at once and put back into lists."""
    keys = [(part.column, key_cast(part, elementwise=True)) for part in step.keys]
    dataset, indexed = step.index.dataset, step.indexed

    def run(batch: Batch) -> None:
        require_index(dataset, indexed, past=batch.past)
        lists = [_key_lists(batch.columns[name], name) for name, _ in keys]
        lengths = [len(value) for value in lists[0]]
        for (name, _), column in zip(keys, lists, strict=True):
            for row, value in enumerate(column):
                if len(value) != lengths[row]:
                    raise InvalidInputError(
                        f"row {row}: {keys[0][0]} has {lengths[row]} elements, {name} {len(value)}; the keys of "
                        f"{dataset} go together"
                    )
        flat: list[list[object]] = [list(chain.from_iterable(column)) for column in lists]
        values = [
            column if convert is None else _converted(name, convert, column)
            for (name, convert), column in zip(keys, flat, strict=True)
        ]
        at: Instants = batch.at
        if not isinstance(at, int):
            at = [at[row] for row, length in enumerate(lengths) for _ in range(length)]
        columns = keyed.read(values, at, fields)[0] if flat[0] else [[] for _ in fields]
        for feature in step.features:
            batch.columns[feature.column] = _grouped(columns[fields.index(feature.field)], lengths, feature)

    return run


def _key_lists(column: Sequence[object], name: str) -> list[list[object]]:
    lists: list[list[object]] = []
    for row, value in enumerate(column):
        if value is None:
            lists.append([])
        elif isinstance(value, (list, tuple)):
            lists.append(list(value))
        else:
            raise InvalidInputError(f"{name}, row {row}: a list of keys is expected, found {value!r}")
    return lists


def _grouped(values: Sequence[object], lengths: Sequence[int], feature: LookedUp) -> list[object]:
    rest = iter(feature.default if value is None else value for value in values)
    return [[next(rest) for _ in range(length)] for length in lengths]
