"""The search for entities."""

from typing import Any

import pytest

from caraway.apps.mcp.searching import entries, search


def flags(owner: str, description: str) -> dict[str, Any]:
    return {"owner": owner, "description": description}


XRAY = {
    "datasets": [
        {"name": "Orders", "metaflags": flags("a@x.com", "What people buy"), "tags": ["shop"], "lineage_tags": ["pii"]},
        {"name": "Users", "metaflags": flags("b@x.com", "People, by orders of size"), "tags": [], "lineage_tags": []},
    ],
    "featuresets": [
        {"name": "Risk", "metaflags": flags("a@x.com", ""), "tags": ["pii"], "lineage_tags": ["pii"]},
    ],
}
LINEAGE = {
    "nodes": [
        {"id": "dataset:Orders", "kind": "dataset", "name": "Orders", "of": None, "owner": "a@x.com"},
        {"id": "feature:Risk.score", "kind": "feature", "name": "Risk.score", "of": "Risk", "owner": "c@x.com"},
        {"id": "source:shop", "kind": "source", "name": "shop", "of": None, "owner": ""},
    ],
    "edges": [],
}


def found(**asked: Any) -> list[str]:
    return [entry["name"] for entry in search(entries(XRAY, LINEAGE), **asked)]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["Orders", "Users", "Risk", "Risk.score", "shop"]),
        ({"text": "ORDERS"}, ["Orders", "Users"]),
        ({"text": "people buy"}, ["Orders"]),
        ({"text": "people sell"}, []),
        ({"kind": "feature"}, ["Risk.score"]),
        ({"owner": "A@x.com"}, ["Orders", "Risk"]),
        ({"tag": "pii"}, ["Orders", "Risk", "Risk.score"]),
        ({"tag": "pi"}, []),
        ({"text": "shop"}, ["shop", "Orders"]),
        ({"text": "c@x", "kind": "feature"}, ["Risk.score"]),
    ],
)
def test_all_conditions_must_be_met_and_names_come_first(asked: dict[str, Any], names: list[str]) -> None:
    assert found(**asked) == names
