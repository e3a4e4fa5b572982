"""The values that a user's function takes from its surroundings, which are a part of its identity."""

import hashlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np

from caraway.graph.capture.code_text import code_text

# A captured value is spelled out in at most this many characters. `caraway describe` shows these texts to people, so a
# longer value, such as a table of a million rates, is shown as its type and a hash.
LONGEST_TEXT = 200

# A `Dataset` object stores the helpers and constants of its class body in this attribute, so that they are pickled with
# the functions that use them.
MEMBERS_ATTRIBUTE = "__caraway_members__"

_SCALARS = (bool, int, float, complex, str, bytes, type(None), date, datetime, time, timedelta, Decimal, Enum)


@dataclass(frozen=True, slots=True)
class Captured:
    """The values and functions that functions use from their surroundings.

    `text` has a line or a text for each value and function, in order of their names. `members` are, for each object
    with a class body (by its `id`), the members that functions use of it.
    """

    text: str
    members: Mapping[int, Mapping[str, Any]]


def captured(functions: Iterable[Callable[..., Any]], is_a_users: Callable[[Callable[..., Any]], bool]) -> Captured:
    """Return the values and functions that functions use by name, and those that these use in turn.

    `is_a_users` returns True for a function of the user, whose text counts, and False for an installed one.
    """
    search = _Search(is_a_users)
    search.look_through(functions)
    return Captured("\n".join(search.found[name] for name in sorted(search.found)), search.members)


def members_of(value: object) -> Mapping[str, Any]:
    """Return the helpers and constants of an object's class body; nothing if it has none (see `MEMBERS_ATTRIBUTE`)."""
    members: Mapping[str, Any] = getattr(value, "__dict__", {}).get(MEMBERS_ATTRIBUTE, {})
    return members


class _Search:
    """A walk over functions and the names that they use."""

    def __init__(self, is_a_users: Callable[[Callable[..., Any]], bool]) -> None:
        self.found: dict[str, str] = {}
        self.members: dict[int, dict[str, Any]] = {}
        self._is_a_users = is_a_users
        self._seen: set[int] = set()
        self._owners: dict[int, Any] = {}
        self._names: set[str] = set()

    def look_through(self, functions: Iterable[Callable[..., Any]]) -> None:
        """Follow functions until nothing new is found."""
        pending: list[types.FunctionType] = []
        for given in functions:
            self._note_owner(given)
            function = _function(given)
            if function is not None:
                self._seen.add(id(function))
                pending.append(function)
        while pending:
            while pending:
                pending += self._look_at(pending.pop())
            pending += self._members_used()

    def _look_at(self, function: types.FunctionType) -> Iterator[types.FunctionType]:
        self._names.update(names_in(function.__code__))
        for name, value in _used(function):
            self._note_owner(value)
            used = _function(value)
            if used is not None and self._is_a_users(used):
                yield from self._first_seen(used)
            elif text := _text(value):
                self.found[name] = f"{name} = {text}"

    def _members_used(self) -> Iterator[types.FunctionType]:
        """Yield the members whose names functions use.

        A name may belong to something else: then one member too many is yielded.
        """
        for key, owner in list(self._owners.items()):
            taken = self.members.setdefault(key, {})
            for name, member in members_of(owner).items():
                if name in self._names and name not in taken:
                    taken[name] = member
                    function = _function(member)
                    if function is not None:
                        yield from self._first_seen(function)
                    elif text := _text(member):
                        full_name = f"{owner.__name__}.{name}"
                        self.found[full_name] = f"{full_name} = {text}"

    def _first_seen(self, function: types.FunctionType) -> Iterator[types.FunctionType]:
        if id(function) not in self._seen:
            self._seen.add(id(function))
            self.found[f"{function.__module__}.{function.__qualname__}"] = code_text(function)
            yield function

    def _note_owner(self, value: object) -> None:
        """Note an object with a class body: itself, or the one to which a method is bound."""
        owner = getattr(value, "__self__", value) if isinstance(value, types.MethodType) else value
        if members_of(owner):
            self._owners[id(owner)] = owner
            if owner is not value:
                self._names.add(value.__name__)  # type: ignore[attr-defined]  # a method


def names_in(code: types.CodeType | None) -> Iterator[str]:
    """Yield the names that a function uses of its module or of other objects, with those of its inner functions."""
    if code is None:
        return
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def _function(value: Any) -> types.FunctionType | None:
    value = getattr(value, "__func__", value)
    return value if isinstance(value, types.FunctionType) else None


def _used(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:
            # Reading the cell of a variable without a value raises `ValueError`. An example is a function that refers
            # to itself and is captured while it is being defined.
            continue
    for name in dict.fromkeys(names_in(function.__code__)):
        if name in function.__globals__ and not name.startswith("__"):
            yield name, function.__globals__[name]
    for name, value in zip(reversed(_parameters(function)), reversed(function.__defaults__ or ()), strict=False):
        yield f"{function.__name__}({name})", value


def _parameters(function: types.FunctionType) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _text(value: Any) -> str:
    """Return the text of a value of plain data; empty for modules, classes and others without a lasting text."""
    if isinstance(value, np.ndarray):
        described = f"{value.dtype} {value.shape} ".encode() + value.tobytes()
        return f"<array {hashlib.sha256(described).hexdigest()}>" if value.dtype != object else ""
    text = _spelled(value)
    return (
        text if len(text) <= LONGEST_TEXT else f"<{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()}>"
    )


def _spelled(value: Any) -> str:
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
