"""The steps between a source's payload and the cast: preproc and where.

Entries of preproc run in order. A `Ref` and the columns of a schema are read from the payload. Expressions and
functions see the results of earlier entries in place of the payload's columns of the same names.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from caraway.compute.rows.batches import RowBatch, Stage, Typed, member
from caraway.compute.rows.column_casts import MISSING, ColumnCast
from caraway.dtypes.types import BOOL, DATETIME, DataType, is_optional, optional, type_name, unrestricted
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Node
from caraway.expr.references import columns_of
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Computed, Constant, Ref, SourceSpec

Fields = Mapping[str, DataType]


def make_columns(
    batch: RowBatch, source: SourceSpec, fields: Fields, now_us: int, *, only: Collection[str] | None = None
) -> None:
    """Run preproc, or its entries for the fields in `only`; rows for which it fails are removed."""
    for name, made in source.preproc:
        if only is not None and name not in only:
            continue
        match made:
            case Ref():
                _copy(batch, name, made)
            case Constant():
                _repeat(batch, name, made, fields[name])
            case Computed():
                _compute(batch, name, made, fields, now_us)


def keep_wanted(batch: RowBatch, source: SourceSpec, fields: Fields, now_us: int) -> None:
    """Run `where`: keep the rows for which it is true, and neither false nor null."""
    where = source.where
    if where is None or not len(batch):
        return
    # `where` runs after preproc. If preproc made a field, `where` reads that field, and the payload needn't have a
    # column of the same name.
    declared = _declared(batch, where, Stage.WHERE, fields=fields)
    if isinstance(where.by, PythonFunction):
        values = _called(batch, where.by, declared, Stage.WHERE, "")
    else:
        values = _evaluated(
            batch, where.by, optional(BOOL), declared, fields=fields, stage=Stage.WHERE, name="", now_us=now_us
        )
    wrong = [p for p, value in enumerate(values) if value is not None and not isinstance(value, (bool, np.bool_))]
    batch.refuse(Stage.WHERE, "", {p: f"where gives {values[p]!r}, a boolean is expected" for p in wrong})
    values = [value for p, value in enumerate(values) if p not in wrong]
    batch.keep([p for p, value in enumerate(values) if value])


def _copy(batch: RowBatch, name: str, ref: Ref) -> None:
    first, *rest = ref.path
    values, errors = list(batch.column(first)), {}
    for position, value in enumerate(values):
        if not rest:
            if value is MISSING:
                errors[position] = f"the payload has no column {first}"
            continue
        try:
            for part in rest:
                value = member(value, part)  # noqa: PLW2901 (a walk)
        except InvalidInputError as error:
            errors[position] = f"{_spelled(ref)}: {error}"
            value = None  # noqa: PLW2901
        values[position] = value
    batch.put(name, values)
    batch.refuse(Stage.PREPROC, name, errors)


def _spelled(ref: Ref) -> str:
    return ref.path[0] + "".join(f"[{part}]" for part in ref.path[1:])


def _repeat(batch: RowBatch, name: str, constant: Constant, field: DataType) -> None:
    # A constant datetime is in stored form already, as microseconds since the epoch. Given its type, it isn't cast: the
    # cast would guess from its size whether it is seconds, milliseconds or microseconds.
    batch.put(name, [constant.value] * len(batch), field if constant.dtype == DATETIME else None)


def _compute(batch: RowBatch, name: str, computed: Computed, fields: Fields, now_us: int) -> None:
    if not len(batch):
        batch.put(name, [])
        return
    declared = _declared(batch, computed, Stage.PREPROC, name)
    if isinstance(computed.by, PythonFunction):
        batch.put(name, _called(batch, computed.by, declared, Stage.PREPROC, name))
    else:
        dtype = fields[name]
        values = _evaluated(
            batch, computed.by, dtype, declared, fields=fields, stage=Stage.PREPROC, name=name, now_us=now_us
        )
        batch.put(name, values, unrestricted(dtype))
        if not is_optional(dtype):
            null = f"expected {type_name(dtype)}, the expression gives null"
            batch.refuse(Stage.PREPROC, name, {p: null for p, value in enumerate(values) if value is None})


def _declared(
    batch: RowBatch, computed: Computed, stage: Stage, name: str = "", *, fields: Collection[str] = ()
) -> dict[str, Typed]:
    """Cast the payload's columns that a schema declares; rows whose cast fails are removed.

    The restrictions of columns in `fields` aren't checked: these columns are cast to the dataset's fields later.
    """
    casts: dict[str, Typed] = {}
    errors: dict[int, str] = {}
    for column, dtype in computed.schema:
        if stage is Stage.WHERE and column in batch.made:
            continue
        raw = batch.cells(column, dtype)
        done = ColumnCast(unrestricted(dtype) if column in fields else dtype, batch.how.manner)(raw)
        casts[column] = Typed(dtype, done.values)
        for position, message in done.errors.items():
            errors.setdefault(position, f"column {column}: {message}")
        for position, value in enumerate(raw):
            if value is MISSING:
                missing = f"the payload has no column {column}, which the schema declares as {type_name(dtype)}"
                errors.setdefault(position, missing)
    numbers = batch.numbers
    batch.refuse(stage, name, errors)
    return _followed(casts, numbers, batch)


def _followed(columns: Mapping[str, Typed], numbers: Sequence[int], batch: RowBatch) -> dict[str, Typed]:
    """Return the columns, computed for rows with these numbers, for the rows that the batch still has."""
    if len(numbers) == len(batch):
        return dict(columns)
    left = set(batch.numbers)
    return {
        name: Typed(typed.dtype, [value for number, value in zip(numbers, typed.stored, strict=True) if number in left])
        for name, typed in columns.items()
    }


def _called(
    batch: RowBatch, function: PythonFunction, declared: Mapping[str, Typed], stage: Stage, name: str
) -> list[object]:
    """Call a user's function; the rows for which it fails are removed."""
    values, errors = batch.how.call(function, batch.seen_by_functions(declared))
    batch.refuse(stage, name, errors)
    return values


def _evaluated(
    batch: RowBatch,
    node: Node,
    wanted: DataType,
    declared: dict[str, Typed],
    *,
    fields: Fields,
    stage: Stage,
    name: str,
    now_us: int,
) -> list[Any]:
    """Evaluate an expression over the columns that it reads.

    Restrictions of their types aren't checked yet: `where` may leave out the rows that break them.
    """
    read = [column for column in columns_of(node) if column not in declared]
    numbers = batch.numbers
    for column in read:
        batch.cast(column, unrestricted(fields[column]), stage=stage)
    declared = _followed(declared, numbers, batch)
    columns = {**{column: Typed(fields[column], batch.typed[column].stored) for column in read}, **declared}
    # Only sources with expressions need polars, and polars takes longer to import than everything else here. So it is
    # imported at the first expression.
    from caraway.compute.rows.expressions import run, run_each  # noqa: PLC0415

    found = run(node, wanted, columns, range(len(batch)), now_us)
    if found is not None:
        return found
    values, errors = run_each(node, wanted, columns, len(batch), now_us)
    batch.refuse(stage, name, errors)
    return values
