"""The output types of aggregates, and the types of columns for which each is defined."""

from caraway.dtypes import types as t
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.graph.aggregates import TRAITS, AggregateFunction, AggregateSpec, Keeps, ResultType, Takes
from caraway.graph.schemas.model import Schema, listed


def function_name(function: AggregateFunction) -> str:
    """Return the name of an aggregate as a user writes it."""
    return "".join(part.title() for part in function.value.split("_"))


def column_of(aggregate: AggregateSpec, before: Schema) -> t.DataType:
    """Return the type of the column that an aggregate reads. Raises `DefinitionError` if there is no such column."""
    if aggregate.of is None or aggregate.of not in before.columns:
        hint = meant(aggregate.of or "", before.columns)
        raise DefinitionError(
            f"aggregate: {_spell(aggregate)}: unknown column {aggregate.of}{hint}; columns: {listed(before.columns)}"
        )
    return before.columns[aggregate.of]


def output_type(aggregate: AggregateSpec, before: Schema) -> t.DataType:
    """Return the output type that an aggregate must declare, given the schema of its input.

    Raises:
        DefinitionError: The column is unknown, or nulls are to be dropped where there are none.
        DefinitionTypeError: The aggregate isn't defined for the column's type.
    """
    traits = TRAITS[aggregate.function]
    if traits.keeps is Keeps.ROWS and aggregate.of is None:
        return t.INT
    found = column_of(aggregate, before)
    _check_dropnull(aggregate, found)
    _check_taken(aggregate, found, traits.takes)
    dtype = _result_type(aggregate, found, traits.result)
    return t.optional(dtype) if traits.default_if_unseen and aggregate.default is None else dtype


def _result_type(aggregate: AggregateSpec, found: t.DataType, rule: ResultType) -> t.DataType:
    match rule:
        case ResultType.INT:
            return t.INT
        case ResultType.FLOAT:
            return t.FLOAT
        case ResultType.COLUMN:
            return t.base_type(found)
        case ResultType.LIST_OF_COLUMN:
            return t.ListType(t.strip_optional(found) if aggregate.dropnull else found)


def _check_taken(aggregate: AggregateSpec, found: t.DataType, takes: Takes) -> None:
    match takes:
        case Takes.ANY:
            pass
        case Takes.HASHABLE:
            _require_hashable(aggregate, found)
        case Takes.HASHABLE_IF_UNIQUE:
            if aggregate.unique:
                _require_hashable(aggregate, found)
        case Takes.NUMBERS:
            _require_number(aggregate, found, also=())
        case Takes.NUMBERS_AND_TIMES:
            _require_number(aggregate, found, also=(t.DATE, t.DATETIME))


def _check_dropnull(aggregate: AggregateSpec, found: t.DataType) -> None:
    if aggregate.dropnull and not t.is_optional(found):
        # A TypeError for FirstK and a ValueError for all other functions are part of the API that Caraway implements,
        # so the classes differ although the mistake is the same.
        first = aggregate.function is AggregateFunction.FIRST_K
        raise (DefinitionTypeError if first else DefinitionError)(
            f"aggregate: {_spell(aggregate)}: dropnull=True, but column {aggregate.of} is {t.type_name(found)}, which "
            "has no nulls"
        )


def _require_number(aggregate: AggregateSpec, found: t.DataType, also: tuple[t.DataType, ...]) -> None:
    base = t.base_type(found)
    if base in (t.INT, t.FLOAT, *also) or isinstance(base, t.DecimalType):
        return
    names = ["int", "float", "Decimal", *(t.type_name(dtype) for dtype in also)]
    raise DefinitionTypeError(
        f"aggregate: {_spell(aggregate)}: column {aggregate.of} is {t.type_name(found)}; possible: {listed(names)}, or "
        "optional of these"
    )


def _require_hashable(aggregate: AggregateSpec, found: t.DataType) -> None:
    if not _is_hashable(found):
        raise DefinitionTypeError(
            f"aggregate: {_spell(aggregate)}: values of column {aggregate.of} ({t.type_name(found)}) can't be told "
            "apart one by one; possible: int, str, bool, Decimal, and optionals, lists or dicts of these"
        )


def _is_hashable(dtype: t.DataType) -> bool:
    match dtype:
        case t.OptionalType(of) | t.ListType(of) | t.MapType(of) | t.BetweenType(of):
            return _is_hashable(of)
        case t.DecimalType() | t.OneOfType() | t.RegexType():
            return True
        case _:
            return dtype in (t.INT, t.STRING, t.BOOL)


def _spell(aggregate: AggregateSpec) -> str:
    return f"{aggregate.into} = {function_name(aggregate.function)}(of={aggregate.of})"
