"""The page of skew: features that were served otherwise than they are when computed again."""

from typing import Any

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given, whole
from caraway.observations.monitoring import SKEW
from caraway.observations.observation import rows_of

# The most features in the table, and the most values that are shown of one feature.
LISTED, SAMPLES = 200, 50
# The hours that the page covers by default, those that it offers, and the greatest number.
HOURS, OFFERED, MAX_HOURS = 24, (1, 24, 168), 24 * 366


async def skew(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the features that were served otherwise than they are when computed again."""
    hours, feature = whole(request, "hours", HOURS, MAX_HOURS), given(request, "feature")
    answer = await context.ask(request, "skew", hours=hours, samples=SAMPLES, feature=feature or None)
    found = rows_of(SKEW, answer)
    return context.page(
        request,
        "skew.html",
        feature=feature,
        hours=hours,
        offered=OFFERED,
        features=found[:LISTED],
        found=len(found),
        samples=answer["samples"],
    )
