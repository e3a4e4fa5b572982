"""The search for entities of a branch by words, kind, owner and tag."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

Kind = Literal["source", "dataset", "pipeline", "sink", "featureset", "extractor", "feature"]


def entries(xray: Mapping[str, Any], lineage: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each entity of a branch.

    A feature has the tags of its featureset, and a pipeline those of its dataset.

    Args:
        xray: The answer of `GET /xray`, which describes datasets and featuresets.
        lineage: The answer of `GET /lineage`, whose nodes are all other entities.
    """
    known: dict[str, Mapping[str, Any]] = {}
    for kind in ("dataset", "featureset"):
        for found in xray[f"{kind}s"]:
            known[found["name"]] = found
            yield _entry(kind, found["name"], found["metaflags"]["owner"], found, found["metaflags"]["description"])
    for node in lineage["nodes"]:
        if node["kind"] != "dataset":
            yield _entry(node["kind"], node["name"], node["owner"], known.get(node["of"] or "", {}))


def search(
    found: Iterable[Mapping[str, Any]], *, text: str = "", kind: Kind | None = None, owner: str = "", tag: str = ""
) -> list[Mapping[str, Any]]:
    """Return the entries that meet all conditions, those whose names have the words before the others.

    Args:
        found: The entries.
        text: Words; each must be in the entry's name, description, owner or tags.
        kind: The kind of the entry.
        owner: The owner of the entry.
        tag: A tag of the entry.
    """
    words = text.casefold().split()
    kept = [
        entry
        for entry in found
        if (kind is None or entry["kind"] == kind)
        and (not owner or entry["owner"].casefold() == owner.casefold())
        and (not tag or tag in entry["tags"])
        and all(word in _text(entry) for word in words)
    ]
    return sorted(kept, key=lambda entry: not all(word in entry["name"].casefold() for word in words))


def _entry(kind: str, name: str, owner: str, described: Mapping[str, Any], description: str = "") -> dict[str, Any]:
    tags = sorted({*described.get("tags", ()), *described.get("lineage_tags", ())})
    return {"kind": kind, "name": name, "owner": owner, "description": description, "tags": tags}


def _text(entry: Mapping[str, Any]) -> str:
    return " ".join((entry["name"], entry["description"], entry["owner"], *entry["tags"])).casefold()
