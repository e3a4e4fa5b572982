"""The neighbourhood of a node in a lineage."""

from collections import defaultdict
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.mcp.lineage import around
from caraway.errors import UnknownEntityError

Pairs = list[tuple[int, int]]
#: Edges from a smaller number to a greater one, so that there is no cycle, as in a graph that was committed.
EDGES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] < pair[1]), max_size=25, unique=True
)


def lineage_of(edges: Pairs) -> dict[str, Any]:
    return {
        "nodes": [{"id": f"dataset:D{n}", "name": f"D{n}"} for n in range(12)],
        "edges": [{"from": f"dataset:D{a}", "to": f"dataset:D{b}"} for a, b in edges],
    }


def names(found: dict[str, Any]) -> set[str]:
    return {node["name"] for node in found["nodes"]}


def reachable(edges: Pairs, start: int, depth: int) -> set[int]:
    """Return what is reached in at most `depth` steps, by an other way than the code: all walks, step by step."""
    ends = defaultdict(set)
    for a, b in edges:
        ends[a].add(b)
    reached = here = {start}
    for _ in range(depth):
        here = {b for a in here for b in ends[a]}
        reached = reached | here
    return reached


@given(EDGES, st.integers(0, 11), st.integers(1, 5), st.sampled_from(["upstream", "downstream", "both"]))
def test_all_within_the_steps_is_found_and_nothing_else(
    edges: Pairs, start: int, depth: int, direction: Literal["upstream", "downstream", "both"]
) -> None:
    found = around(lineage_of(edges), f"D{start}", direction, depth)
    expected = set()
    if direction != "upstream":
        expected |= reachable(edges, start, depth)
    if direction != "downstream":
        expected |= reachable([(b, a) for a, b in edges], start, depth)
    assert names(found) == {f"D{n}" for n in expected}
    assert {(edge["from"], edge["to"]) for edge in found["edges"]} == {
        (f"dataset:D{a}", f"dataset:D{b}") for a, b in edges if a in expected and b in expected
    }
    assert found["left_out"] == 0


def test_the_nearest_stay_if_there_are_too_many() -> None:
    chain = lineage_of(list(pairwise(range(12))))
    found = around(chain, "D5", "both", 20, limit=5)
    assert names(found) == {"D3", "D4", "D5", "D6", "D7"}
    assert found["left_out"] == 7


def test_the_id_of_a_node_is_a_name_too() -> None:
    graph = lineage_of([(0, 1)])
    assert names(around(graph, "dataset:D0")) == names(around(graph, "D0")) == {"D0", "D1"}


def test_an_unknown_name_is_refused_with_a_remedy() -> None:
    with pytest.raises(UnknownEntityError, match=r"nothing named 'E'; search_catalog finds names"):
        around(lineage_of([]), "E")


def test_the_nearest_nodes_come_first_if_several_have_the_name() -> None:
    # D0 and D4 have one name: D1 is one step behind D0, and three before D4.
    graph = lineage_of([(0, 1), (1, 2), (2, 3), (3, 4)])
    for node in graph["nodes"]:
        node["name"] = node["name"].replace("D4", "D0")
    found = around(graph, "D0", "both", 3, limit=4)
    assert {node["id"] for node in found["nodes"]} == {f"dataset:D{n}" for n in (0, 1, 3, 4)}
