"""Expressions as text: the stable form, which messages show."""

from functools import singledispatch
from typing import Any

import orjson

from caraway.dtypes.types import type_name
from caraway.dtypes.values import to_json
from caraway.expr.nodes import (
    Binary,
    DatePart,
    DatetimeLiteral,
    DictContains,
    DictGet,
    DictLen,
    FillNull,
    FromEpoch,
    IsNull,
    JsonExtract,
    ListAt,
    ListCall,
    ListContains,
    ListFilter,
    ListFunction,
    ListMap,
    Literal,
    Log,
    MakeStruct,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    ParseJson,
    Power,
    Ref,
    Repeat,
    Round,
    Since,
    SinceEpoch,
    Split,
    Strftime,
    StringCall,
    StringFunction,
    Strptime,
    StructGet,
    TimeUnit,
    Unary,
    Var,
    When,
    Zip,
)

_NUMBER_NAMES = {
    NumberFunction.ARCSIN: "ASIN",
    NumberFunction.ARCCOS: "ACOS",
    NumberFunction.ARCTAN: "ATAN",
}
_LIST_NAMES = {ListFunction.LEN: "LEN", ListFunction.HAS_NULL: "HAS_NULL"}


@singledispatch
def print_node(node: Node) -> str:
    """Return the text of an expression."""
    raise NotImplementedError(f"no printed form for {type(node).__name__}")


def _call(name: str, *parts: object, **named: object) -> str:
    """Return the text of a call; arguments that are nodes are printed, all others are inserted as they are."""
    shown = [part if isinstance(part, str) else print_node(part) for part in parts]  # type: ignore[arg-type]
    shown += [f"{key}={part if isinstance(part, str) else print_node(part)}" for key, part in named.items()]  # type: ignore[arg-type]
    return f"{name}({', '.join(shown)})"


def _unit(unit: TimeUnit) -> str:
    return f"TimeUnit.{unit.name}"


def _json(value: Any) -> str:
    """Return a constant as JSON, with blanks after commas and colons."""
    match value:
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case dict():
            return f"{{{', '.join(f'{_json(key)}: {_json(item)}' for key, item in value.items())}}}"
        case _:
            return orjson.dumps(value).decode()


@print_node.register
def _(node: Ref) -> str:
    return f'col("{node.name}")'


@print_node.register
def _(node: Var) -> str:
    return f'var("{node.name}")'


@print_node.register
def _(node: Literal) -> str:
    return "null" if node.value is None or node.dtype is None else _json(to_json(node.dtype)(node.value))


@print_node.register
def _(node: Unary) -> str:
    return f"{node.op}({print_node(node.operand)})"


@print_node.register
def _(node: Binary) -> str:
    return f"({print_node(node.left)} {node.op} {print_node(node.right)})"


@print_node.register
def _(node: IsNull) -> str:
    return _call("IS_NULL", node.operand)


@print_node.register
def _(node: FillNull) -> str:
    return _call("FILL_NULL", node.operand, node.fill)


@print_node.register
def _(node: When) -> str:
    branches = [f"WHEN {print_node(predicate)} THEN {print_node(value)}" for predicate, value in node.branches]
    last = [] if node.otherwise is None else [f"ELSE {print_node(node.otherwise)}"]
    return " ".join([*branches, *last])


@print_node.register
def _(node: NumberCall) -> str:
    return _call(_NUMBER_NAMES.get(node.function, node.function.name), node.operand)


@print_node.register
def _(node: Round) -> str:
    return _call("ROUND", node.operand, str(node.precision))


@print_node.register
def _(node: Power) -> str:
    return _call("POW", node.operand, node.exponent)


@print_node.register
def _(node: Log) -> str:
    return _call("LOG", node.operand, base="e" if node.base is None else f"{node.base:g}")


@print_node.register
def _(node: StringCall) -> str:
    parts = (node.operand, *node.args)
    if node.function is StringFunction.CONCAT:
        return " + ".join(map(print_node, parts))
    return _call(node.function.name, *parts)


@print_node.register
def _(node: Split) -> str:
    return _call("SPLIT", node.operand, _json(node.separator))


@print_node.register
def _(node: Strptime) -> str:
    return _call("STRPTIME", node.operand, node.format, node.timezone)


@print_node.register
def _(node: ParseJson) -> str:
    return _call("PARSE", node.operand, type_name(node.dtype))


@print_node.register
def _(node: JsonExtract) -> str:
    return _call("JSON_EXTRACT", node.operand, node.path)


@print_node.register
def _(node: DatePart) -> str:
    return _call("DATEPART", node.operand, _unit(node.part))


@print_node.register
def _(node: Since) -> str:
    return _call("SINCE", node.operand, node.start, unit=_unit(node.unit))


@print_node.register
def _(node: SinceEpoch) -> str:
    return _call("SINCE_EPOCH", node.operand, unit=_unit(node.unit))


@print_node.register
def _(node: Strftime) -> str:
    return _call("STRFTIME", node.operand, node.format)


@print_node.register
def _(node: FromEpoch) -> str:
    return _call("FROM_EPOCH", node.operand, unit=_unit(node.unit))


@print_node.register
def _(node: DatetimeLiteral) -> str:
    parts = (node.year, node.month, node.day, node.hour, node.minute, node.second, node.microsecond)
    return _call("DATETIME", *map(str, parts), timezone=node.timezone)


@print_node.register
def _(node: ListCall) -> str:
    return _call(_LIST_NAMES.get(node.function, f"LIST_{node.function.name}"), node.operand)


@print_node.register
def _(node: ListAt) -> str:
    return f"{print_node(node.operand)}[{print_node(node.index)}]"


@print_node.register
def _(node: ListContains) -> str:
    return _call("CONTAINS", node.operand, node.item)


@print_node.register
def _(node: ListFilter) -> str:
    return _call("LIST_FILTER", node.operand, f'"{node.variable}"', node.predicate)


@print_node.register
def _(node: ListMap) -> str:
    return _call("LIST_MAP", node.operand, f'"{node.variable}"', node.body)


@print_node.register
def _(node: DictGet) -> str:
    default = () if node.default is None else (node.default,)
    return _call(f"{print_node(node.operand)}.dict.get", node.key, *default)


@print_node.register
def _(node: DictLen) -> str:
    return _call("LEN", node.operand)


@print_node.register
def _(node: DictContains) -> str:
    return _call("CONTAINS", node.operand, node.key)


@print_node.register
def _(node: StructGet) -> str:
    return f"{print_node(node.operand)}.{node.field}"


@print_node.register
def _(node: MakeStruct) -> str:
    return f"STRUCT({_fields(node.fields)})"


@print_node.register
def _(node: Zip) -> str:
    return f"ZIP({', '.join(filter(None, (node.dtype.name, _fields(node.fields))))})"


@print_node.register
def _(node: Repeat) -> str:
    return _call("REPEAT", node.value, node.by)


@print_node.register
def _(_node: Now) -> str:
    return "NOW()"


def _fields(fields: tuple[tuple[str, Node], ...]) -> str:
    return ", ".join(f"{name}={print_node(value)}" for name, value in fields)
