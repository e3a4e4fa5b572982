"""The page to walk along the lineage, with the whole graph at its begin."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from caraway.apps.server.console.catalogue import Catalogue, Kind
from caraway.apps.server.console.picture import picture_of, whole_picture_of
from caraway.apps.server.console.problems import problems_of
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given, whole
from caraway.errors import UnknownEntityError, meant
from caraway.graph.trees import reached
from caraway.observations.figures import seconds

# The default and the greatest number of steps around the entity that are drawn.
DEPTH, MAX_DEPTH = 2, 6
# The most neighbours in a list.
LISTED = 200


async def lineage(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with what is around an entity, as a picture and as lists; without an entity, its choice."""
    catalogue, node, name = context.catalogue(request), given(request, "node"), given(request, "name")
    depth = whole(request, "depth", DEPTH, MAX_DEPTH)
    if name and not node:
        # The pages of entities have their names in their addresses, so people write `name=` here, too.
        node = next((f"{entry.kind}:{entry.name}" for entry in catalogue.entries if entry.name == name), "")
        if not node:
            near = meant(name, [entry.name for entry in catalogue.entries])
            raise UnknownEntityError(f"the branch has no entity {name[:200]!r}{near}")
    if node and not catalogue.has(node):
        known = [f"{entry.kind}:{entry.name}" for entry in catalogue.entries]
        raise UnknownEntityError(f"the branch has no entity {node[:200]!r}{meant(node, known)}")
    health = await _health(context, request, catalogue)
    if not node:
        return _whole(context, request, catalogue, health)
    columns = {pair for edge in catalogue.lineage.edges if edge.source == node for pair in edge.columns}
    return context.page(
        request,
        "lineage.html",
        node=node,
        kind=node.partition(":")[0],
        name=node.partition(":")[2],
        depth=depth,
        health=health,
        deepest=MAX_DEPTH,
        picture=picture_of(node, catalogue.above, catalogue.below, depth),
        above=catalogue.above.get(node, ())[:LISTED],
        below=catalogue.below.get(node, ())[:LISTED],
        columns=sorted(columns)[:LISTED],
    )


def _whole(
    context: PageContext, request: Request[Any, Any], catalogue: Catalogue, health: Mapping[str, tuple[bool, str]]
) -> HttpResponse:
    """Return the page with the whole graph, where a featureset stands for its features."""
    below: dict[str, dict[str, None]] = {}
    stale = {_shown(node): found for node, found in health.items() if found[0]}
    for before, afters in catalogue.below.items():
        for after in afters:
            if _shown(before) != _shown(after):
                below.setdefault(_shown(before), {})[_shown(after)] = None
    entries = [entry for entry in catalogue.entries if entry.kind is not Kind.FEATURE]
    nodes = [f"{entry.kind}:{entry.name}" for entry in entries]
    return context.page(
        request,
        "lineage_whole.html",
        entries=catalogue.entries[:LISTED],
        picture=whole_picture_of(nodes, {node: tuple(after) for node, after in below.items()}) if nodes else None,
        health={**health, **stale},
    )


def _shown(node: str) -> str:
    """Return the id of the featureset of a feature, and any other id as it is."""
    return f"featureset:{node[8:].partition('.')[0]}" if node.startswith("feature:") else node


async def _health(
    context: PageContext, request: Request[Any, Any], catalogue: Catalogue
) -> dict[str, tuple[bool, str]]:
    """Return by id of an entity whether a problem makes it stale, and how old a dataset's data is, in words."""
    status = await context.ask(request, "status")
    problems = problems_of(status, catalogue.datasets, datetime.now(UTC))
    wrong = [f"dataset:{name}" for problem in problems for name in problem.datasets]
    ages = await context.ask_if_allowed(request, "freshness")
    known = [] if isinstance(ages, str) else ages["datasets"]
    fresh = {f"dataset:{one['dataset']}": (False, seconds(one["seconds"])) for one in known}
    return {**fresh, **dict.fromkeys([*wrong, *reached(wrong, catalogue.below)], (True, "stale"))}
