"""Comparison of expected and actual values in tests."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import cloudpickle
import pandas as pd
from google.protobuf.message import Message

from caraway.errors import DefinitionTypeError, InvalidInputError
from caraway.graph.functions import PythonFunction
from caraway.graph.specs import PythonExtractor

T = TypeVar("T")

# The fields of definitions' protobuf messages that contain the code of user functions. When tests compare definitions,
# these fields are emptied in copies.
CODE = ("source_code", "pickled")


def almost_equal(a: float, b: float, epsilon: float = 1e-6) -> bool:
    """Return whether two numbers differ by less than `epsilon`; NaN equals NaN."""
    return (math.isnan(a) and math.isnan(b)) or abs(a - b) < epsilon


def error_message(actual: object, expected: object) -> str:
    """Return the differences of two requests, specs or messages, line by line; empty if there are none."""
    lines = difflib.unified_diff(_lines(expected), _lines(actual), "expected", "actual", lineterm="")
    return "\n".join(lines)


def _lines(value: object) -> list[str]:
    """Return a value as text, a line for each of its leaves."""
    return str(value).splitlines() if isinstance(value, Message) else list(_leaves("", value))


def _leaves(path: str, value: object) -> list[str]:
    if is_dataclass(value) and not isinstance(value, type):
        inner: Mapping[str, object] = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, Mapping):
        inner = {str(key): item for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        inner = {f"[{position}]": item for position, item in enumerate(value)}
    else:
        return [f"{path}: {value!r}"]
    kind = [f"{path}: {type(value).__name__}"]
    return kind + [line for name, item in inner.items() for line in _leaves(f"{path}.{name}".lstrip("."), item)]


def get_extractor_func(extractor_request: PythonExtractor) -> Any:
    """Return a function `(ts, *series)` of a committed extractor; its columns are named by full names.

    Raises:
        DefinitionTypeError: The argument isn't an extractor with a function.
        InvalidInputError: The extractor's code was erased.
    """
    if not isinstance(extractor_request, PythonExtractor):
        raise DefinitionTypeError(
            f"get_extractor_func: an extractor with a function is expected, not {type(extractor_request).__name__}"
        )
    if not extractor_request.pickled:
        raise InvalidInputError(f"get_extractor_func: the code of extractor {extractor_request.name} was erased")
    function = cloudpickle.loads(extractor_request.pickled)
    prefix = extractor_request.outputs[0].partition(".")[0]

    def call(ts: "pd.Series[Any]", *series: "pd.Series[Any]") -> Any:
        result = function(None, ts, *series)
        if isinstance(result, pd.Series):
            return result.rename(f"{prefix}.{result.name}")
        return result.rename(columns={name: f"{prefix}.{name}" for name in result.columns})

    return call


def erase_extractor_pycode(extractor_request: T) -> T:
    """Return a copy of an extractor without code, for comparisons."""
    erased: T = _without_code(extractor_request)
    return erased


def erase_operator_pycode(operator_request: T) -> T:
    """Return a copy of an operator, and of those below it, without code, for comparisons."""
    erased: T = _without_code(operator_request)
    return erased


def _without_code(value: Any) -> Any:
    match value:
        case Message():
            copy = type(value)()
            copy.CopyFrom(value)
            _clear(copy)
            return copy
        case tuple() | list():
            return type(value)(_without_code(item) for item in value)
        case PythonExtractor() | PythonFunction():
            return replace(value, source_code="", pickled=b"")
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _without_code(getattr(value, f.name)) for f in fields(value)})
    return value


def _clear(message: Message) -> None:
    for descriptor, value in message.ListFields():
        if descriptor.name in CODE:
            message.ClearField(descriptor.name)
        elif isinstance(value, Message):
            _clear(value)
        elif descriptor.message_type is not None:
            items = value.values() if isinstance(value, Mapping) else value
            for item in items:
                if isinstance(item, Message):
                    _clear(item)
