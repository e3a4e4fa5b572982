"""JSONPath, in Goessner's notation with RFC 9535's meaning: the selection of values in a document.

`$` is the document, `.key` and `['key']` a member, `[i]` an element (from 0; no negative indices), `[a:b]` and
`[a:b:step]` a slice, `[*]` and `.*` all members or elements in the document's order, `..key` (also `..[0]`, `..*`)
the same at any depth, a value before what is inside it, `['a', 0]` several of these in the order given, and
`[?(@.k > 1)]` the members or elements that pass a test. A test compares (`== != < <= > >=`) constants and single
values `@…` or `$…`, asks for the existence of a value (`@.k`), and is combined with `&& || !` and parentheses.

Numbers are ordered among themselves and so are texts, by code points; all other values are equal or not. A missing
value equals only a missing value. The parsed path is plain data, so that other engines can read it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from caraway.expr.functions.json_path_parser import (
    All,
    And,
    Compare,
    Constant,
    Element,
    Exists,
    Member,
    Not,
    Or,
    Segment,
    Selector,
    Slice,
    Test,
    Where,
    parse_segments,
)


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A parsed path."""

    text: str
    segments: tuple[Segment, ...]


class Missing:
    """The value of a path in a test when it selects nothing."""


MISSING = Missing()


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JsonPath:
    """Parse a path.

    Raises:
        DefinitionError: The path is malformed; the message has the position.
    """
    return JsonPath(text, parse_segments(text))


def first_match(path: JsonPath, document: Any) -> Any:
    """Return the first value that a path selects in a document (as Python's JSON libraries load it).

    The result is null if there is none.
    """
    return next(_select(path.segments, document, document), None)


def _select(segments: tuple[Segment, ...], value: Any, root: Any) -> Iterator[Any]:
    if not segments:
        yield value
        return
    segment, rest = segments[0], segments[1:]
    for place in _places(value) if segment.deep else (value,):
        for selector in segment.selectors:
            for found in _apply(selector, place, root):
                yield from _select(rest, found, root)


def _places(value: Any) -> Iterator[Any]:
    """Yield a value and all that is inside it, the outer before the inner."""
    waiting = [value]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(_children(place)))


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _apply(selector: Selector, value: Any, root: Any) -> list[Any]:
    match selector:
        case Member(name):
            return [value[name]] if isinstance(value, dict) and name in value else []
        case Element(index):
            return [value[index]] if isinstance(value, list) and index < len(value) else []
        case Slice(start, stop, step):
            return value[start:stop:step] if isinstance(value, list) else []
        case All():
            return _children(value)
        case Where(test):
            return [child for child in _children(value) if _holds(test, child, root)]


def _holds(test: Test, value: Any, root: Any) -> bool:
    match test:
        case And(parts):
            return all(_holds(part, value, root) for part in parts)
        case Or(parts):
            return any(_holds(part, value, root) for part in parts)
        case Not(part):
            return not _holds(part, value, root)
        case Exists(path):
            return next(_select(path.segments, root if path.absolute else value, root), MISSING) is not MISSING
        case Compare(operator, left, right):
            sides = [
                side.value
                if isinstance(side, Constant)
                else next(_select(side.segments, root if side.absolute else value, root), MISSING)
                for side in (left, right)
            ]
            return compare(operator, sides[0], sides[1])


def compare(operator: str, left: Any, right: Any) -> bool:
    """Compare two JSON values, or a missing one (`MISSING`), as RFC 9535 does."""
    match operator:
        case "==":
            return _equal(left, right)
        case "!=":
            return not _equal(left, right)
        case "<":
            return _less(left, right)
        case "<=":
            return _less(left, right) or _equal(left, right)
        case ">":
            return _less(right, left)
        case _:
            return _less(right, left) or _equal(left, right)


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
    """Return two numbers as ints if both are, else as doubles, as expressions compare them."""
    return (left, right) if isinstance(left, int) and isinstance(right, int) else (float(left), float(right))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
