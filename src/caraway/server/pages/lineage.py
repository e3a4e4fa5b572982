"""The page to walk along the lineage."""

from typing import Any

from caraway.console.picture import picture_of
from caraway.errors import UnknownEntityError
from caraway.query.catalog import meant
from caraway.server.http.messages import HttpResponse, Request
from caraway.server.pages.context import PageContext
from caraway.server.pages.parameters import given, whole

# The steps from the entity that are drawn, and the most that may be asked for.
DEPTH, MAX_DEPTH = 2, 6
# The most neighbours in a list.
LISTED = 200


async def lineage(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with what is around an entity, as a picture and as lists; without an entity, its choice."""
    catalogue, node = context.catalogue(request), given(request, "node")
    depth = whole(request, "depth", DEPTH, MAX_DEPTH)
    if node and not catalogue.has(node):
        known = [f"{entry.kind}:{entry.name}" for entry in catalogue.entries]
        raise UnknownEntityError(f"the branch has no entity {node[:200]!r}{meant(node, known)}")
    if not node:
        return context.page(request, "lineage_choice.html", entries=catalogue.entries[:LISTED])
    columns = {pair for edge in catalogue.lineage.edges if edge.source == node for pair in edge.columns}
    return context.page(
        request,
        "lineage.html",
        node=node,
        kind=node.partition(":")[0],
        name=node.partition(":")[2],
        depth=depth,
        deepest=MAX_DEPTH,
        picture=picture_of(node, catalogue.above, catalogue.below, depth),
        above=catalogue.above.get(node, ())[:LISTED],
        below=catalogue.below.get(node, ())[:LISTED],
        columns=sorted(columns)[:LISTED],
    )
