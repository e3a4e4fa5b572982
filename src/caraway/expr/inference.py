"""The static type of an expression over columns of known types."""

import zoneinfo
from collections.abc import Mapping
from functools import lru_cache, singledispatch

from caraway.dtypes.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    EmbeddingType,
    ListType,
    MapType,
    base_type,
    is_optional,
    optional,
    type_name,
)
from caraway.errors import DefinitionError
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    DatePart,
    FillNull,
    IsNull,
    Literal,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    Ref,
    Round,
    Since,
    SinceEpoch,
    StringCall,
    StringFunction,
    TimeUnit,
    Unary,
    UnaryOp,
    When,
)
from caraway.expr.printer import print_node
from caraway.expr.promotion import NUMBERS, common_type

ARITHMETIC = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.MOD})
ORDERING = frozenset({BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE})
ORDERED = (DATETIME, DATE, STRING)

Schema = Mapping[str, DataType]


def infer(node: Node, schema: Schema) -> DataType:
    """Return the type of an expression.

    Args:
        node: The expression.
        schema: The types of the columns that it may refer to.

    Raises:
        DefinitionError: The expression is ill-typed or refers to an unknown column, or is the null literal, whose
        type isn't
            known; the message names the operation, the types found and the printed expression.
    """
    found = infer_nullable(node, schema)
    if found is None:
        raise DefinitionError(
            "the type of null alone is not known; give it one: lit(None, Optional[int]) or a fillnull"
        )
    return found


@singledispatch
def infer_nullable(node: Node, schema: Schema) -> DataType | None:
    """Return the type of an expression; None for the null literal."""
    raise NotImplementedError(f"no type rule for {type(node).__name__}")


@infer_nullable.register
def _(node: Ref, schema: Schema) -> DataType | None:
    if node.name not in schema:
        raise DefinitionError(f'unknown column "{node.name}" in an expression; columns: {", ".join(schema) or "none"}')
    return schema[node.name]


@infer_nullable.register
def _(node: Literal, _schema: Schema) -> DataType | None:
    return node.dtype


@infer_nullable.register
def _(node: Unary, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    wanted = (BOOL,) if node.op is UnaryOp.NOT else NUMBERS
    return _like(operand, _require(node, operand, wanted))


@infer_nullable.register
def _(node: Binary, schema: Schema) -> DataType | None:
    left, right = infer_nullable(node.left, schema), infer_nullable(node.right, schema)
    if node.op in ARITHMETIC:
        return _arithmetic(node, left, right)
    if node.op in (BinaryOp.AND, BinaryOp.OR):
        for side in (left, right):
            _require(node, side, (BOOL,))
        return _either_optional(BOOL, left, right)
    wanted = (*NUMBERS, *ORDERED) if node.op in ORDERING else None
    return _comparison(node, left, right, wanted)


@infer_nullable.register
def _(node: IsNull, schema: Schema) -> DataType | None:
    infer_nullable(node.operand, schema)
    return BOOL


@infer_nullable.register
def _(node: FillNull, schema: Schema) -> DataType | None:
    operand, fill = infer_nullable(node.operand, schema), infer_nullable(node.fill, schema)
    try:
        common = common_type(operand, fill)
    except LookupError:
        raise _error(node, f"a null {_spell(operand)} can't be filled with {_spell(fill)}") from None
    if common is None or fill is None or is_optional(fill):
        return common
    return _strip(common)


@infer_nullable.register
def _(node: When, schema: Schema) -> DataType | None:
    for predicate, _ in node.branches:
        found = infer_nullable(predicate, schema)
        if found is None or base_type(found) != BOOL:
            raise _error(node, f"the predicate {print_node(predicate)} of when() is {_spell(found)}, not bool")
    values = [value for _, value in node.branches]
    types = [infer_nullable(value, schema) for value in values]
    types.append(None if node.otherwise is None else infer_nullable(node.otherwise, schema))
    result = types[0]
    for dtype in types[1:]:
        try:
            result = common_type(result, dtype)
        except LookupError:
            raise _error(node, f"the branches of when() have no common type: {', '.join(map(_spell, types))}") from None
    return result


@infer_nullable.register
def _(node: NumberCall, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    base = _require(node, operand, NUMBERS)
    match node.function:
        case NumberFunction.ABS:
            return _like(operand, base)
        case NumberFunction.CEIL | NumberFunction.FLOOR:
            return _like(operand, INT)
        case NumberFunction.SQRT:
            return _like(operand, FLOAT)
        case NumberFunction.IS_NAN | NumberFunction.IS_INFINITE:
            return _like(operand, BOOL)
        case NumberFunction.TO_STRING:
            return _like(operand, STRING)


@infer_nullable.register
def _(node: Round, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    _require(node, operand, NUMBERS)
    return _like(operand, INT if node.precision == 0 else FLOAT)


@infer_nullable.register
def _(node: StringCall, schema: Schema) -> DataType | None:
    parts = [infer_nullable(part, schema) for part in (node.operand, *node.args)]
    for part in parts:
        _require(node, part, (STRING,))
    match node.function:
        case StringFunction.LOWER | StringFunction.UPPER | StringFunction.CONCAT:
            result: DataType = STRING
        case StringFunction.LEN:
            result = INT
        case StringFunction.CONTAINS | StringFunction.STARTSWITH | StringFunction.ENDSWITH:
            result = BOOL
    return _either_optional(result, *parts)


@infer_nullable.register
def _(node: DatePart, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    _require(node, operand, (DATETIME,))
    if not is_timezone(node.timezone):
        raise _error(node, f'unknown time zone "{node.timezone}"; zones are named as "Europe/Paris"')
    return _like(operand, INT)


@infer_nullable.register
def _(node: Since, schema: Schema) -> DataType | None:
    ends = infer_nullable(node.operand, schema), infer_nullable(node.start, schema)
    for end in ends:
        _require(node, end, (DATETIME,))
    _require_fixed_unit(node, node.unit)
    return _either_optional(INT, *ends)


@infer_nullable.register
def _(node: SinceEpoch, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    _require(node, operand, (DATETIME,))
    _require_fixed_unit(node, node.unit)
    return _like(operand, INT)


@infer_nullable.register
def _(_node: Now, _schema: Schema) -> DataType | None:
    return DATETIME


@lru_cache(maxsize=256)
def is_timezone(name: str) -> bool:
    """Tell whether `name` is an IANA time zone."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def operand_type(dtype: DataType) -> DataType:
    """Return the type as which a value takes part in an operation: restrictions off, an embedding as a list."""
    base = base_type(dtype)
    return ListType(FLOAT) if isinstance(base, EmbeddingType) else base


def _arithmetic(node: Binary, left: DataType | None, right: DataType | None) -> DataType:
    if left is None and right is None:
        raise _error(node, f"{node.op} of two nulls has no type")
    bases = [_require(node, side, NUMBERS) for side in (left, right) if side is not None]
    result = INT if all(base == INT for base in bases) and node.op is not BinaryOp.DIV else FLOAT
    return _either_optional(result, left, right)


def _comparison(
    node: Binary, left: DataType | None, right: DataType | None, wanted: tuple[DataType, ...] | None
) -> DataType:
    bases = [operand_type(side) for side in (left, right) if side is not None]
    if wanted is not None:
        for side in (left, right):
            _require(node, side, wanted)
    both_numbers = all(base in NUMBERS for base in bases)
    if len(bases) == 2 and bases[0] != bases[1] and not both_numbers:
        raise _error(node, f"{node.op} can't compare {_spell(left)} with {_spell(right)}")
    if any(isinstance(base, MapType) for base in bases) and node.op not in (BinaryOp.EQ, BinaryOp.NE):
        raise _error(node, f"{node.op} is not defined for {_spell(left)}")
    return _either_optional(BOOL, left, right)


def _require(node: Node, found: DataType | None, wanted: tuple[DataType, ...]) -> DataType:
    """Return the base type of an operand, which must be one of `wanted`; null fits all."""
    if found is None:
        return wanted[0]
    base = operand_type(found)
    if base not in wanted:
        names = " or ".join(dict.fromkeys(type_name(dtype) for dtype in wanted))
        raise _error(node, f"{operation_name(node)} takes {names}, found {_spell(found)}")
    return base


def _require_fixed_unit(node: Node, unit: TimeUnit) -> None:
    if unit is TimeUnit.MONTH:
        raise _error(node, "a month has no fixed length; use day or week as the unit")


def operation_name(node: Node) -> str:
    """Name what a node does, for messages."""
    match node:
        case Unary(op=op) | Binary(op=op):
            return f"operator {op}"
        case NumberCall(function=function) | StringCall(function=function):
            return f"{function}()"
        case DatePart(part=part):
            return f"dt.{part}"
        case Since():
            return "dt.since()"
        case SinceEpoch():
            return "dt.since_epoch()"
        case _:
            return f"{type(node).__name__.lower()}()"


def _like(operand: DataType | None, result: DataType) -> DataType:
    return optional(result) if operand is None or is_optional(operand) else result


def _either_optional(result: DataType, *operands: DataType | None) -> DataType:
    return optional(result) if any(side is None or is_optional(side) for side in operands) else result


def _strip(dtype: DataType) -> DataType:
    return dtype.of if is_optional(dtype) else dtype  # type: ignore[union-attr]


def _spell(dtype: DataType | None) -> str:
    return "null" if dtype is None else type_name(dtype)


def _error(node: Node, text: str) -> DefinitionError:
    return DefinitionError(f"{text}, in {print_node(node)}")
