"""Expressions as text in a stable form, which error messages show."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from caraway.dtypes.types import type_name
from caraway.dtypes.values import to_json
from caraway.expr import nodes as n

_NAMES = {
    n.NumberFunction.ARCSIN: "ASIN",
    n.NumberFunction.ARCCOS: "ACOS",
    n.NumberFunction.ARCTAN: "ATAN",
    n.ListFunction.LEN: "LEN",
    n.ListFunction.HAS_NULL: "HAS_NULL",
}


def print_node(node: n.Node) -> str:
    """Return the text of an expression."""
    return PRINTERS[type(node)](node)


def _call(name: str, *parts: object, **named: object) -> str:
    """Return the text of a call; arguments that are nodes are printed, all others are inserted as they are."""
    shown = [part if isinstance(part, str) else print_node(part) for part in parts]  # type: ignore[arg-type]
    shown += [f"{key}={part if isinstance(part, str) else print_node(part)}" for key, part in named.items()]  # type: ignore[arg-type]
    return f"{name}({', '.join(shown)})"


def _unit(unit: n.TimeUnit) -> str:
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


def _fields(fields: tuple[tuple[str, n.Node], ...]) -> str:
    return ", ".join(f"{name}={print_node(value)}" for name, value in fields)


def _literal(node: n.Literal) -> str:
    return "null" if node.value is None or node.dtype is None else _json(to_json(node.dtype)(node.value))


def _when(node: n.When) -> str:
    branches = [f"WHEN {print_node(predicate)} THEN {print_node(value)}" for predicate, value in node.branches]
    last = [] if node.otherwise is None else [f"ELSE {print_node(node.otherwise)}"]
    return " ".join([*branches, *last])


def _string_call(node: n.StringCall) -> str:
    parts = (node.operand, *node.args)
    if node.function is n.StringFunction.CONCAT:
        return " + ".join(map(print_node, parts))
    return _call(node.function.name, *parts)


def _datetime(node: n.DatetimeLiteral) -> str:
    parts = (node.year, node.month, node.day, node.hour, node.minute, node.second, node.microsecond)
    return _call("DATETIME", *map(str, parts), timezone=node.timezone)


def _dict_get(node: n.DictGet) -> str:
    default = () if node.default is None else (node.default,)
    return _call(f"{print_node(node.operand)}.dict.get", node.key, *default)


PRINTERS: Mapping[type, Callable[[Any], str]] = {
    n.Ref: lambda node: f'col("{node.name}")',
    n.Var: lambda node: f'var("{node.name}")',
    n.Literal: _literal,
    n.Unary: lambda node: f"{node.op}({print_node(node.operand)})",
    n.Binary: lambda node: f"({print_node(node.left)} {node.op} {print_node(node.right)})",
    n.IsNull: lambda node: _call("IS_NULL", node.operand),
    n.FillNull: lambda node: _call("FILL_NULL", node.operand, node.fill),
    n.When: _when,
    n.NumberCall: lambda node: _call(_NAMES.get(node.function, node.function.name), node.operand),
    n.Round: lambda node: _call("ROUND", node.operand, str(node.precision)),
    n.Power: lambda node: _call("POW", node.operand, node.exponent),
    n.Log: lambda node: _call("LOG", node.operand, base="e" if node.base is None else f"{node.base:g}"),
    n.StringCall: _string_call,
    n.Split: lambda node: _call("SPLIT", node.operand, _json(node.separator)),
    n.Strptime: lambda node: _call("STRPTIME", node.operand, node.format, node.timezone),
    n.ParseJson: lambda node: _call("PARSE", node.operand, type_name(node.dtype)),
    n.JsonExtract: lambda node: _call("JSON_EXTRACT", node.operand, node.path),
    n.DatePart: lambda node: _call("DATEPART", node.operand, _unit(node.part)),
    n.Since: lambda node: _call("SINCE", node.operand, node.start, unit=_unit(node.unit)),
    n.SinceEpoch: lambda node: _call("SINCE_EPOCH", node.operand, unit=_unit(node.unit)),
    n.Strftime: lambda node: _call("STRFTIME", node.operand, node.format),
    n.FromEpoch: lambda node: _call("FROM_EPOCH", node.operand, unit=_unit(node.unit)),
    n.DatetimeLiteral: _datetime,
    n.ListCall: lambda node: _call(_NAMES.get(node.function, f"LIST_{node.function.name}"), node.operand),
    n.ListAt: lambda node: f"{print_node(node.operand)}[{print_node(node.index)}]",
    n.ListContains: lambda node: _call("CONTAINS", node.operand, node.item),
    n.ListFilter: lambda node: _call("LIST_FILTER", node.operand, f'"{node.variable}"', node.predicate),
    n.ListMap: lambda node: _call("LIST_MAP", node.operand, f'"{node.variable}"', node.body),
    n.DictGet: _dict_get,
    n.DictLen: lambda node: _call("LEN", node.operand),
    n.DictContains: lambda node: _call("CONTAINS", node.operand, node.key),
    n.StructGet: lambda node: f"{print_node(node.operand)}.{node.field}",
    n.MakeStruct: lambda node: f"STRUCT({_fields(node.fields)})",
    n.Zip: lambda node: f"ZIP({', '.join(filter(None, (node.dtype.name, _fields(node.fields))))})",
    n.Repeat: lambda node: _call("REPEAT", node.value, node.by),
    n.Now: lambda _: "NOW()",
}
