"""The syntax trees of the files with definitions. Each file is parsed once, however many definitions it holds."""

import ast
import functools
import inspect
import linecache
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# At most this many source files have their syntax trees, lambdas and classes cached. Definitions are made file by file,
# so only a few files are in use at a time: one file, and the files that it is importing.
KEPT_FILES = 8


@dataclass(frozen=True, slots=True)
class FieldText:
    """An annotated name of a class body, and the comment lines directly above it."""

    name: str
    comment: str


def fields_text(cls: type) -> Sequence[FieldText]:
    """Return the annotated names of a class body in the order of the text, repeated ones too.

    The result is empty if the source isn't at hand. If a file has several classes of one name, the one with these names
    counts.
    """
    try:
        filename = inspect.getfile(cls)
    except (OSError, TypeError):
        return ()
    module = sys.modules.get(cls.__module__)
    linecache.checkcache(filename)
    text = "".join(linecache.getlines(filename, vars(module) if module else None))
    names = set(inspect.get_annotations(cls))
    fitting = [
        fields for fields in _classes(text).get(cls.__qualname__, ()) if {field.name for field in fields} <= names
    ]
    return max(fitting, key=len, default=())


@functools.lru_cache(maxsize=KEPT_FILES)
def lambdas(text: str) -> Sequence[ast.Lambda]:
    """Return the lambdas of a module's text; empty if it isn't Python."""
    tree = _tree(text)
    return () if tree is None else tuple(node for node in ast.walk(tree) if isinstance(node, ast.Lambda))


@functools.lru_cache(maxsize=KEPT_FILES)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


@functools.lru_cache(maxsize=KEPT_FILES)
def _classes(text: str) -> dict[str, list[Sequence[FieldText]]]:
    """Return the fields of all classes of a text, by the qualified names of the classes."""
    tree, lines = _tree(text), text.splitlines()
    found: dict[str, list[Sequence[FieldText]]] = {}
    for name, definition in _named(tree, "") if tree is not None else ():
        found.setdefault(name, []).append(tuple(_fields(definition, lines)))
    return found


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield f"{prefix}{name}", child
                yield from _named(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _named(child, f"{prefix}{name}.<locals>.")
            case ast.expr():
                # An expression holds no class, so it isn't searched.
                continue
            case _:
                yield from _named(child, prefix)


def _fields(definition: ast.ClassDef, lines: Sequence[str]) -> Iterator[FieldText]:
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield FieldText(statement.target.id, _comment_above(statement.lineno - 1, lines))


def _comment_above(place: int, lines: Sequence[str]) -> str:
    first = place
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
    return "\n".join(line.strip().lstrip("#").strip() for line in lines[first:place])
