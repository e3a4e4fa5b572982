"""Walking an expression: its nodes and the columns that it refers to."""

from collections.abc import Iterator
from dataclasses import fields

from caraway.expr.nodes import NODE_TYPES, Node, Ref


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    pending: list[object] = [node]
    while pending:
        found = pending.pop()
        if isinstance(found, tuple):
            pending.extend(reversed(found))
        elif isinstance(found, NODE_TYPES):
            yield found  # type: ignore[misc]
            pending.extend(getattr(found, f.name) for f in reversed(fields(found)))  # type: ignore[arg-type]


def columns_of(node: Node) -> tuple[str, ...]:
    """Name the columns that an expression refers to, each once, in order of appearance."""
    return tuple(dict.fromkeys(found.name for found in walk(node) if isinstance(found, Ref)))
