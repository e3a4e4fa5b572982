"""The pages of drift: what the watch has found, and the distances of features from their reference."""

from typing import Any

from caraway.errors import InvalidInputError
from caraway.served.drift_reports import Against
from caraway.server.http.messages import HttpResponse, Request
from caraway.server.pages.context import PageContext
from caraway.server.pages.parameters import given, whole

# The findings of the list, and the features and distances of a comparison that are shown.
FINDINGS, FEATURES = 200, 100
# The hours that are compared unless the address has others, those that the page offers, and the greatest number.
HOURS, OFFERED, MAX_HOURS = 24, (1, 24, 168), 24 * 366
# The references as people read them; empty is what the API takes without one.
REFERENCES = {
    "": "the reference that was set, or else a day before",
    "training": "the reference that was set",
    "previous": "the hours before",
    "day": "a day before",
    "week": "a week before",
}


async def drift(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the findings of the watch; or with how a feature or featureset compares now."""
    name, reference = given(request, "feature"), given(request, "reference")
    hours = whole(request, "hours", HOURS, MAX_HOURS)
    if reference and reference not in set(Against):
        known = ", ".join(Against)
        raise InvalidInputError(f"there is no reference {reference[:40]!r}; references: {known}")
    if not name:
        found = (await context.ask(request, "drift_findings", limit=FINDINGS))["findings"]
        sets = list(context.catalogue(request).featuresets)
        return context.page(
            request,
            "drift.html",
            findings=found,
            drifted=len({one["feature"] for one in found if one["drifted"]}),
            full=len(found) == FINDINGS,
            featuresets=sets,
        )
    answer = await context.ask(request, "drift", feature=name, hours=hours, reference=reference or None)
    features = sorted(answer["features"], key=lambda one: (not one["drifted"], one["feature"]))
    return context.page(
        request,
        "drift_feature.html",
        name=name,
        hours=hours,
        offered=OFFERED,
        reference=reference,
        references=REFERENCES,
        since=answer["since"],
        false_alarms=answer["false_alarms"],
        features=features[:FEATURES],
        more=max(0, len(features) - FEATURES),
    )
