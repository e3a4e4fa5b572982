"""The neighbourhood of one node in a branch's lineage: what it is computed from, and what is computed from it."""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Literal

from caraway.errors import UnknownEntityError
from caraway.graph.trees import following, steps_from

Direction = Literal["upstream", "downstream", "both"]


def around(
    graph: Mapping[str, Any], name: str, direction: Direction = "both", depth: int = 3, limit: int = 200
) -> dict[str, Any]:
    """Return the nodes and edges within some steps of the nodes that have a name.

    Args:
        graph: The answer of `GET /lineage`: `nodes` with `id` and `name`, `edges` with `from` and `to`.
        name: The name or the id of a node.
        direction: Follow edges against their direction, along it, or both.
        depth: The most steps from the node.
        limit: The most nodes; those that are nearer come first.

    Returns:
        `nodes`, `edges`, and in `left_out` how many nodes within these steps exceed the limit.

    Raises:
        UnknownEntityError: The branch has no node of this name, or the token may not see it.
    """
    nodes = {node["id"]: node for node in graph["nodes"]}
    starts = [id_ for id_, node in nodes.items() if name in {id_, node["name"]}]
    if not starts:
        raise UnknownEntityError(f"the lineage of the branch has nothing named {name!r}; search_catalog finds names")
    pairs = [(edge["from"], edge["to"]) for edge in graph["edges"]]
    ways: list[Mapping[str, int]] = []
    if direction != "downstream":
        ways.append(steps_from(starts, following((after, before) for before, after in pairs), depth))
    if direction != "upstream":
        ways.append(steps_from(starts, following(pairs), depth))
    # A node may be upstream of one node of this name and downstream of another, so its least distance counts.
    distances = {id_: min(way.get(id_, depth) for way in ways) for id_ in chain(*ways)}
    reached = sorted(distances, key=lambda id_: distances[id_])
    shown = reached[:limit]
    return {
        "nodes": [nodes[id_] for id_ in shown if id_ in nodes],
        "edges": _between(graph["edges"], set(shown)),
        "left_out": len(reached) - len(shown),
    }


def _between(edges: Iterable[Mapping[str, Any]], shown: Collection[str]) -> list[Any]:
    return [edge for edge in edges if edge["from"] in shown and edge["to"] in shown]
