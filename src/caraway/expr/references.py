"""The nodes of an expression, and the columns that it refers to."""

from collections.abc import Iterator
from dataclasses import fields

from caraway.expr.nodes import NODE_TYPES, Node, Ref


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(children(found)))


def children(node: Node) -> list[Node]:
    """Return the nodes right below a node, in order."""
    found: list[Node] = []
    pending: list[object] = [getattr(node, field.name) for field in reversed(fields(node))]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending.extend(reversed(part))
        elif isinstance(part, NODE_TYPES):
            found.append(part)  # type: ignore[arg-type]
    return found


def columns_of(node: Node) -> tuple[str, ...]:
    """Return the columns that an expression refers to, each once, in order of appearance."""
    return tuple(dict.fromkeys(found.name for found in walk(node) if isinstance(found, Ref)))
