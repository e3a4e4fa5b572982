"""What a user's function takes from around it: part of its identity, since another value makes it another function."""

import hashlib
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np

from caraway.lib.code_text import code_text

# Longer values are told by their hash: a table of a million rates is no text for people.
LONGEST_TEXT = 200

_SCALARS = (bool, int, float, complex, str, bytes, type(None), date, datetime, time, timedelta, Decimal, Enum)


def captured_text(functions: Iterable[Callable[..., Any]], is_a_users: Callable[[Callable[..., Any]], bool]) -> str:
    """Tell the values and functions that functions use by name, a line or a text for each, in order of their names.

    Args:
        functions: They and what they use are looked through.
        is_a_users: Tells a function of the user, whose text counts, from one that is installed.
    """
    given = [_function(f) for f in functions]
    seen = {id(f) for f in given}
    pending = [f for f in given if f is not None]
    found: dict[str, str] = {}
    while pending:
        for name, value in _used(pending.pop()):
            used = _function(value)
            if used is not None and is_a_users(used):
                if id(used) not in seen:
                    seen.add(id(used))
                    pending.append(used)
                    found[f"{used.__module__}.{used.__qualname__}"] = code_text(used)
            elif text := _text(value):
                found[name] = f"{name} = {text}"
    return "\n".join(found[name] for name in sorted(found))


def names_in(code: types.CodeType | None) -> Iterator[str]:
    """Give the names that a function uses of its module or of other objects, those of functions within it as well."""
    if code is None:
        return
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def _function(value: Any) -> types.FunctionType | None:  # noqa: ANN401 (a function may use anything)
    value = getattr(value, "__func__", value)
    return value if isinstance(value, types.FunctionType) else None


def _used(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:
            # A function that names itself, not yet bound.
            continue
    for name in dict.fromkeys(names_in(function.__code__)):
        if name in function.__globals__ and not name.startswith("__"):
            yield name, function.__globals__[name]
    for name, value in zip(reversed(_parameters(function)), reversed(function.__defaults__ or ()), strict=False):
        yield f"{function.__name__}({name})", value


def _parameters(function: types.FunctionType) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _text(value: Any) -> str:  # noqa: ANN401
    """Spell a value that is plain data; nothing for modules, classes and whatever else has no lasting text."""
    if isinstance(value, np.ndarray):
        described = f"{value.dtype} {value.shape} ".encode() + value.tobytes()
        return f"<array {hashlib.sha256(described).hexdigest()}>" if value.dtype != object else ""
    text = _spelled(value)
    return (
        text if len(text) <= LONGEST_TEXT else f"<{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()}>"
    )


def _spelled(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, (*_SCALARS, np.generic)):
        return repr(value)
    match value:
        case list() | tuple():
            parts = [_spelled(item) for item in value]
            return f"[{', '.join(parts)}]" if all(parts) else ""
        case set() | frozenset():
            parts = sorted(_spelled(item) for item in value)
            return f"{{{', '.join(parts)}}}" if all(parts) else ""
        case dict():
            pairs = [(_spelled(key), _spelled(item)) for key, item in value.items()]
            return f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}" if all(k and v for k, v in pairs) else ""
        case _:
            return ""
