"""The text of a user's function, which people see and from which its identity is made."""

import ast
import functools
import hashlib
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from caraway.graph.capture.code_trees import lambdas

Place = tuple[int, int]


def source_text(function: Callable[..., Any]) -> str:
    """Return the text of a function, or of the class of a callable object; empty if the source isn't at hand.

    For a lambda this is the lambda alone, wherever on its lines it stands.
    """
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType) and code.co_name == "<lambda>":
        return _lambda_text(code)
    described = function if code is not None or isinstance(function, type) else type(function)
    try:
        return textwrap.dedent(inspect.getsource(described))
    except (OSError, TypeError):
        return ""


def code_text(function: Callable[..., Any]) -> str:
    """Return the text of a function or, if the source isn't at hand, its name and a hash of its code.

    Equal functions have equal texts, in every process.
    """
    if isinstance(function, functools.partial):
        named = ", ".join(
            [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        )
        return f"partial({named}) of {code_text(function.func)}"
    if text := source_text(function):
        return text
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        # A builtin has no code, so its name is the whole description.
        return f"<{getattr(function, '__module__', None) or ''} {name}>"
    return f"<function {name} {hashlib.sha256(_description(code).encode()).hexdigest()}>"


def _lambda_text(code: types.CodeType) -> str:
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    places = [place for place in _places(code) if place[0] >= code.co_firstlineno]
    if not text or not places:
        return ""
    # Several lambdas may span all instructions of the code: the lambda that was compiled to it, and the lambdas around
    # that one. The wanted lambda is the innermost, which begins last.
    around = [node for node in lambdas(text) if _spans(node, min(places), max(places))]
    if not around:
        return ""
    found = max(around, key=lambda node: (node.lineno, node.col_offset))
    return ast.get_source_segment(text, found) or ""


def _places(code: types.CodeType) -> Iterator[Place]:
    """Yield the position of each instruction, by line and by byte in the line, beginning and end."""
    for line, end_line, column, end_column in code.co_positions():
        # Instructions that Python adds on its own, such as RESUME, have no columns or end at column 0, so they are
        # skipped.
        if line is not None and end_line is not None and column is not None and end_column:
            yield (line, column)
            yield (end_line, end_column)


def _spans(node: ast.Lambda, first: Place, last: Place) -> bool:
    begin = (node.body.lineno, node.body.col_offset)
    end = (node.body.end_lineno or node.body.lineno, node.body.end_col_offset or node.body.col_offset)
    return begin <= first and last <= end


def _description(code: types.CodeType) -> str:
    """Return a description of a function's code, the same in every process: no addresses, no order of sets."""
    constants = [_description(c) if isinstance(c, types.CodeType) else _constant(c) for c in code.co_consts]
    parts = (code.co_code.hex(), *constants, *code.co_names, *code.co_varnames, *code.co_freevars)
    return "\0".join(parts)


def _constant(value: object) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
