"""JSONPath, in Goessner's notation with RFC 9535's meaning: the selection of values in a document.

`$` is the document, `.key` and `['key']` a member, `[i]` an element (from 0; no negative indices), `[a:b]` and
`[a:b:step]` a slice, `[*]` and `.*` all members or elements in the document's order, `..key` (also `..[0]`, `..*`)
the same at any depth, a value before what is inside it, `['a', 0]` several of these in the order given, and
`[?(@.k > 1)]` the members or elements that pass a test. A test compares (`== != < <= > >=`) constants and single
values `@…` or `$…`, asks for the existence of a value (`@.k`), and is combined with `&& || !` and parentheses.

A number can be less than a number, and a text than a text, by code points; other values are only equal or not. A
missing value equals only a missing value.

A parsed path is a tuple of functions, one for each step. Decision 33 has the reasons against a library.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, NoReturn

import orjson

from caraway.errors import DefinitionError

# Functions of the three types below take a value inside of a document, and the document. A `Select` is a step of a path
# and returns the values that the step selects. A `Test` returns whether the value passes. An `Operand` returns one side
# of a comparison.
Select = Callable[[Any, Any], Iterable[Any]]
Test = Callable[[Any, Any], bool]
Operand = Callable[[Any, Any], Any]

JsonPath = tuple[Select, ...]

# The value that a path which selects nothing has in a comparison. None can't be this value, because None is a null in
# the document.
MISSING = object()

_NAME = re.compile(r"[^\W\d][\w-]*")
_INDEX = re.compile(r"0|[1-9]\d{0,15}", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_COMPARISON = re.compile(r"==|!=|<=|>=|<|>")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"true|false|null")


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JsonPath:
    """Parse a path; the `DefinitionError` for a malformed one has the position."""
    parser = _Parser(text)
    if not parser.take("$"):
        parser.fail('a path begins with "$"')
    path = parser.steps()
    if not parser.done():
        parser.fail('expected ".key", "[…]" or "..key"')
    return path


def first_match(path: JsonPath, document: Any) -> Any:
    """Return the first value that a path selects in a document (as Python's JSON libraries load it).

    The result is null if there is none.
    """
    return next(_selected(path, document, document), None)


def _selected(path: JsonPath, value: Any, root: Any) -> Iterator[Any]:
    if not path:
        yield value
        return
    rest = path[1:]
    for found in path[0](value, root):
        yield from _selected(rest, found, root)


def _united(selectors: tuple[Select, ...], value: Any, root: Any) -> Iterator[Any]:
    """Yield what several selectors find in a value, one selector after the other."""
    for select in selectors:
        yield from select(value, root)


def _deep(select: Select, value: Any, root: Any) -> Iterator[Any]:
    """Yield what a selector finds in a value, and then in each of the values inside of it, outer ones first."""
    pending = [value]
    while pending:
        found = pending.pop()
        yield from select(found, root)
        pending.extend(reversed(_children(found)))


def _children(value: Any, _root: Any = None) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _member(name: str) -> Select:
    return lambda value, _: (value[name],) if isinstance(value, dict) and name in value else ()


def _element(index: int) -> Select:
    return lambda value, _: (value[index],) if isinstance(value, list) and index < len(value) else ()


def _slice(elements: slice) -> Select:
    return lambda value, _: value[elements] if isinstance(value, list) else ()


def _where(test: Test) -> Select:
    return lambda value, root: [child for child in _children(value) if test(child, root)]


class _Parser:
    """A cursor over the text of a path, and a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fail(self, expected: str) -> NoReturn:
        rest = self._text[self._at :]
        found = f'"{rest}"' if rest else "its end"
        raise DefinitionError(
            f'bad JSONPath "{self._text}": {expected}, found {found} at position {self._at}; a path is written as '
            "$.key, $['key'], $[0], $[1:3], $[*], $..key or $[?(@.key > 1)]"
        )

    def done(self) -> bool:
        return self._at == len(self._text)

    def take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def steps(self) -> JsonPath:
        found: list[Select] = []
        while True:
            if self.take(".."):
                found.append(partial(_deep, self._bracket() if self.take("[") else self._dotted()))
            elif self.take("."):
                found.append(self._dotted())
            elif self.take("["):
                found.append(self._bracket())
            else:
                return tuple(found)

    def _dotted(self) -> Select:
        if self.take("*"):
            return _children
        name = self._match(_NAME)
        if name is None:
            self.fail("expected the name of a key; write other names as ['name']")
        return _member(name)

    def _bracket(self) -> Select:
        selectors = [self._selector()]
        while self._token(","):
            selectors.append(self._selector())
        if not self._token("]"):
            self.fail('expected "]"')
        return selectors[0] if len(selectors) == 1 else partial(_united, tuple(selectors))

    def _selector(self) -> Select:
        self._blanks()
        if self.take("*"):
            return _children
        if self.take("?"):
            return _where(self._either())
        if (name := self._quoted()) is not None:
            return _member(name)
        start = self._index()
        if not self._token(":"):
            if start is None:
                self.fail("expected an index from 0 (negative ones are not supported), a key in quotes, * or ?(…)")
            return _element(start)
        stop = self._index()
        step = self._index() if self._token(":") else None
        if step == 0:
            self.fail("expected a step of at least 1")
        return _slice(slice(start or 0, stop, step))

    def _either(self) -> Test:
        parts = [self._both()]
        while self._token("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda value, root: any(part(value, root) for part in parts)

    def _both(self) -> Test:
        parts = [self._single()]
        while self._token("&&"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda value, root: all(part(value, root) for part in parts)

    def _single(self) -> Test:
        if self._token("!"):
            negated = self._single()
            return lambda value, root: not negated(value, root)
        if self._token("("):
            test = self._either()
            if not self._token(")"):
                self.fail('expected ")"')
            return test
        left, is_constant = self._operand()
        self._blanks()
        operator = self._match(_COMPARISON)
        if operator is not None:
            compare, (right, _) = _COMPARISONS[operator], self._operand()
            return lambda value, root: compare(left(value, root), right(value, root))
        if is_constant:
            self.fail("expected a comparison")
        return lambda value, root: left(value, root) is not MISSING

    def _operand(self) -> tuple[Operand, bool]:
        """Return one side of a comparison, and whether it is a constant."""
        self._blanks()
        if self.take("$"):
            absolute = self.steps()
            return lambda _, root: next(_selected(absolute, root, root), MISSING), False
        if self.take("@"):
            path = self.steps()
            return lambda value, root: next(_selected(path, value, root), MISSING), False
        constant: Any
        if (text := self._quoted()) is not None:
            constant = text
        elif (word := self._match(_WORD)) is not None:
            constant = _WORDS[word]
        elif (number := self._match(_NUMBER)) is not None:
            constant = orjson.loads(number)
        else:
            self.fail("expected @, $, a number, a text in quotes, true, false or null")
        return lambda _value, _root: constant, True

    def _index(self) -> int | None:
        self._blanks()
        digits = self._match(_INDEX)
        return None if digits is None else int(digits)

    def _quoted(self) -> str | None:
        start = self._at
        quoted = self._match(_QUOTED)
        if quoted is None:
            return None
        inner = quoted[1:-1]
        if quoted[0] == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        try:
            return str(orjson.loads(f'"{inner}"'))
        except orjson.JSONDecodeError:
            self._at = start
            self.fail("expected a text in quotes with the escapes of JSON")

    def _token(self, sign: str) -> bool:
        self._blanks()
        return self.take(sign)

    def _blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t\n\r":
            self._at += 1

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(item, right[key]) for key, item in left.items())
    if _is_number(left) and _is_number(right):
        return _both(left, right)[0] == _both(left, right)[1]
    return type(left) is type(right) and bool(left == right)


def _less(left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return _both(left, right)[0] < _both(left, right)[1]
    return isinstance(left, str) and isinstance(right, str) and left < right


def _both(left: float, right: float) -> tuple[float, float]:
    """Return two numbers as expressions compare them: as ints if both are ints, else as doubles."""
    return (left, right) if isinstance(left, int) and isinstance(right, int) else (float(left), float(right))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# RFC 9535 defines how two JSON values are compared, each of which may be missing (`MISSING`).
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _less,
    "<=": lambda left, right: _less(left, right) or _equal(left, right),
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less(right, left) or _equal(left, right),
}
