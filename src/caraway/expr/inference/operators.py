"""Type rules of references, constants, operators and choices."""

from caraway.dtypes.types import BOOL, DATE, DATETIME, FLOAT, INT, STRING, DataType, is_optional, strip_optional
from caraway.errors import DefinitionError, meant
from caraway.expr.inference.checks import either_optional, infer_nullable, like, operand_type, require, spell, wrong
from caraway.expr.inference.scopes import LambdaSchema, Schema
from caraway.expr.nodes import Binary, BinaryOp, FillNull, IsNull, Literal, Now, Ref, Unary, UnaryOp, Var, When
from caraway.expr.printer import print_node
from caraway.expr.promotion import NUMBERS, common_type, shape

ARITHMETIC = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.MOD})
ORDERING = frozenset({BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE})
ORDERED = (DATETIME, DATE, STRING)


@infer_nullable.register
def _(node: Ref, schema: Schema) -> DataType | None:
    if node.name not in schema:
        raise DefinitionError(
            f'unknown column "{node.name}" in an expression{meant(node.name, schema)}; '
            f"columns: {', '.join(schema) or 'none'}"
        )
    return schema[node.name]


@infer_nullable.register
def _(node: Var, schema: Schema) -> DataType | None:
    if not isinstance(schema, LambdaSchema):
        raise DefinitionError(f'var("{node.name}") has a meaning only in the body of list.map() or list.filter()')
    if node.name != schema.variable:
        raise DefinitionError(f'unknown variable "{node.name}"; the variable here is "{schema.variable}"')
    return schema.element


@infer_nullable.register
def _(node: Literal, _schema: Schema) -> DataType | None:
    return node.dtype


@infer_nullable.register
def _(_node: Now, _schema: Schema) -> DataType | None:
    return DATETIME


@infer_nullable.register
def _(node: Unary, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    return like(operand, require(node, operand, (BOOL,) if node.op is UnaryOp.NOT else NUMBERS))


@infer_nullable.register
def _(node: Binary, schema: Schema) -> DataType | None:
    left, right = infer_nullable(node.left, schema), infer_nullable(node.right, schema)
    if node.op in ARITHMETIC:
        return _arithmetic(node, left, right)
    if node.op in (BinaryOp.AND, BinaryOp.OR):
        for side in (left, right):
            require(node, side, (BOOL,))
        return either_optional(BOOL, left, right)
    return _comparison(node, left, right)


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
        raise wrong(node, f"a null {spell(operand)} can't be filled with {spell(fill)}") from None
    if common is None or fill is None or is_optional(fill):
        return common
    return strip_optional(common)


@infer_nullable.register
def _(node: When, schema: Schema) -> DataType | None:
    for predicate, _ in node.branches:
        found = infer_nullable(predicate, schema)
        if found is None or operand_type(found) != BOOL:
            raise wrong(node, f"the predicate {print_node(predicate)} of when() is {spell(found)}, not bool")
    types = [infer_nullable(value, schema) for _, value in node.branches]
    types.append(None if node.otherwise is None else infer_nullable(node.otherwise, schema))
    result = types[0]
    for dtype in types[1:]:
        try:
            result = common_type(result, dtype)
        except LookupError:
            raise wrong(node, f"the branches of when() have no common type: {', '.join(map(spell, types))}") from None
    return result


def _arithmetic(node: Binary, left: DataType | None, right: DataType | None) -> DataType:
    if left is None and right is None:
        raise wrong(node, f"{node.op} of two nulls has no type")
    bases = [require(node, side, NUMBERS) for side in (left, right) if side is not None]
    result = INT if all(base == INT for base in bases) and node.op is not BinaryOp.DIV else FLOAT
    return either_optional(result, left, right)


def _comparison(node: Binary, left: DataType | None, right: DataType | None) -> DataType:
    if node.op in ORDERING:
        for side in (left, right):
            require(node, side, (*NUMBERS, *ORDERED))
    bases = [operand_type(side) for side in (left, right) if side is not None]
    both_numbers = all(base in NUMBERS for base in bases)
    if len(bases) == 2 and shape(bases[0]) != shape(bases[1]) and not both_numbers:
        raise wrong(node, f"{node.op} can't compare {spell(left)} with {spell(right)}")
    return either_optional(BOOL, left, right)
