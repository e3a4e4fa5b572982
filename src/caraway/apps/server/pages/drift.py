"""The pages of drift: what was found last, and how features or the fields of a dataset compare with their reference."""

from typing import Any

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given, whole
from caraway.errors import InvalidInputError
from caraway.observations.monitoring import DRIFT, PROFILES
from caraway.observations.observation import rows_of
from caraway.offline.monitoring.drift.reports import Against

# The most findings in the list, and the most features, or fields of a dataset, in a comparison.
FINDINGS, FEATURES, FIELDS = 200, 100, 50
# The hours that are compared by default, those that the page offers, and the greatest number.
HOURS, OFFERED, MAX_HOURS = 24, (1, 24, 168), 24 * 366
# The references in plain words, by the value of the parameter; with an empty value, the API chooses.
REFERENCES = {
    "": "the reference that was set, or else a day before",
    "training": "the reference that was set",
    "previous": "the hours before",
    "day": "a day before",
    "week": "a week before",
}
OF_DATASETS = {"day": "a day before", "previous": "the hours before", "week": "a week before"}


async def drift(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with what was found last; or with how a feature, a featureset or a dataset compares now."""
    name, reference = given(request, "feature"), given(request, "reference")
    hours = whole(request, "hours", HOURS, MAX_HOURS)
    if reference and reference not in set(Against):
        known = ", ".join(Against)
        raise InvalidInputError(f"there is no reference {reference[:40]!r}; references: {known}")
    dataset = given(request, "dataset")
    if dataset:
        return await _of_dataset(context, request, dataset, hours, reference)
    if not name:
        datasets = await context.ask(request, "dataset_findings", limit=FINDINGS)
        found = (await context.ask(request, "drift_findings", limit=FINDINGS))["findings"]
        sets = list(context.catalogue(request).featuresets)
        return context.page(
            request,
            "drift.html",
            findings=found,
            drifted=len({one["feature"] for one in found if one["drifted"]}),
            full=len(found) == FINDINGS,
            featuresets=sets,
            profiled=datasets["profiled"],
            of_datasets=datasets["findings"],
            more_of_datasets=len(datasets["findings"]) == FINDINGS,
            shown=FEATURES,
        )
    answer = await context.ask(request, "drift", feature=name, hours=hours, reference=reference or None)
    features = rows_of(DRIFT, answer)
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


async def _of_dataset(
    context: PageContext, request: Request[Any, Any], name: str, hours: int, reference: str
) -> HttpResponse:
    reference = reference or Against.DAY.value
    answer = await context.ask(request, "dataset_drift", name, hours=hours, reference=reference)
    fields = rows_of(PROFILES, answer)
    return context.page(
        request,
        "drift_dataset.html",
        name=name,
        hours=hours,
        offered=OFFERED,
        reference=reference,
        references=OF_DATASETS,
        since=answer["since"],
        until=answer["until"],
        false_alarms=answer["false_alarms"],
        fields=fields[:FIELDS],
        more=max(0, len(fields) - FIELDS),
    )
