"""Observations of rows and features: skew, drift, expectations, and the age of the rows that queries read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from caraway.observations.figures import cut, instant, number, seconds, share
from caraway.observations.observation import Column, Observation, Page, Row, figure, rows_of, without

# The most characters of a name, and of a value in the rows of samples. Longer texts are cut.
MAX_NAME, MAX_VALUE = 120, 80
# The statuses of expectations, in the order of the rows, each with its text and its tone (see `Column.tone`).
STATUSES = {"violated": ("violated", "bad"), "ok": ("as expected", "good"), "no_data": ("no rows yet", "")}


def _leads_to(path: str, parameter: str, member: str) -> Callable[[Row], Page]:
    return lambda row: (path, {parameter: row[member]})


def _differing(row: Row) -> float | None:
    return row["mismatched"] / row["checked"] if row["checked"] else None


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {number(count)}" for reason, count in reasons.items())


SKEW = Observation(
    title="Features that were served and computed again, those that differ most first",
    rows="features",
    columns=(
        Column(
            "feature", "feature", page=lambda row: ("/feature", {"name": row["feature"]}) if row["served_now"] else None
        ),
        Column("commit", lambda row: row["commit"][:12] + ("" if row["served_now"] else " (former)"), is_code=True),
        figure("checked", "checked"),
        figure("differ", "mismatched"),
        Column(
            "share",
            lambda row: share(_differing(row)),
            is_figure=True,
            tone=lambda row: "" if not row["checked"] else "bad" if row["mismatched"] else "good",
        ),
        Column("reasons", lambda row: _counted(row["reasons"])),
        Column("not checked", lambda row: _counted(row["unchecked"])),
    ),
    order=lambda row: (-(_differing(row) or 0.0), row["feature"]),
)
SKEW_SAMPLES = Observation(
    title="Some values that differ",
    rows="samples",
    columns=(
        # The instant is shown as the answer spells it, with the microsecond as of which the values were computed.
        Column("as of", "at"),
        Column("feature", "feature"),
        Column("served", lambda row: cut(row["served"], MAX_VALUE)),
        Column("recomputed", lambda row: cut(row["recomputed"], MAX_VALUE)),
        Column("reason", "reason"),
    ),
)


def _finding(row: Row) -> str:
    if row.get("reference", "") is None:
        return "no reference"
    return "drifted" if row["drifted"] else "as before"


FEATURE = Column("feature", "feature", page=_leads_to("/drift", "feature", "feature"))
FIELD = Column("field", "field")
FIELD_OF_DATASET = Column(
    "field", lambda row: f"{row['dataset']}.{row['field']}", page=_leads_to("/drift", "dataset", "dataset")
)
FINDING = Column("finding", _finding, tone=lambda row: "bad" if row["drifted"] else "")
REFERENCE = Column("reference", "reference")
ITS_ROWS = figure("its rows", lambda row: row["reference_rows"] if row["reference"] else None)
DISTANCE = Column("distance", lambda row: row["distance"].replace("_", " "))
VALUE = figure("value", "value")

DISTANCES = Observation(
    title="Distances from the reference",
    rows="distances",
    columns=(
        DISTANCE,
        VALUE,
        figure("proved, at least", "at_least"),
        figure("threshold", lambda row: "none" if row["threshold"] is None else row["threshold"]),
        FINDING,
        Column("change", lambda row: cut(row["note"], 200)),
    ),
)


def _distances_of(kind: str, name: Column) -> Observation:
    return Observation(
        title=f"Distances of {kind}s from their references",
        rows=lambda answer: [{kind: each[kind], **one} for each in answer[f"{kind}s"] for one in each["distances"]],
        columns=(name, *DISTANCES.columns),
        order=lambda row: not row["drifted"],
    )


FEATURE_DISTANCES, FIELD_DISTANCES = _distances_of("feature", FEATURE), _distances_of("field", FIELD)
FEATURE_FINDINGS = Observation(
    title="Distances, those of features that have drifted first",
    rows="findings",
    columns=(FEATURE, DISTANCE, VALUE, FINDING),
)
DATASET_FINDINGS = Observation(
    title="Distances from a day before, those of fields that have drifted first",
    rows="findings",
    columns=(FIELD_OF_DATASET, DISTANCE, VALUE, FINDING),
)
DRIFT = Observation(
    title="Features that were served, those that have drifted first",
    rows="features",
    columns=(FEATURE, FINDING, figure("rows", "rows"), REFERENCE, ITS_ROWS),
    order=lambda row: (not row["drifted"], row["feature"]),
)
FIELD_DRIFT = Observation(
    title="Fields, those that have drifted first",
    rows="fields",
    columns=(FIELD, FINDING, REFERENCE, ITS_ROWS),
    order=lambda row: (not row["drifted"], row["field"]),
)


def _of_profile(name: str, cell: str | Callable[[Row], object], *, is_figure: bool = True) -> Column:
    found = cell if callable(cell) else lambda profile: profile[cell]
    return Column(name, lambda row: found(row["profile"]), is_figure=is_figure)


def _frequent(profile: Row) -> str:
    return ", ".join(f"{cut(one['value'], 40)} ({number(one['rows'])})" for one in profile["top"][:3])


PROFILES = Observation(
    title="Fields; delay_seconds is the time from the event to its ingestion",
    rows="fields",
    columns=(
        FIELD,
        FINDING,
        _of_profile("kind", "kind", is_figure=False),
        _of_profile("rows", "rows"),
        _of_profile("missing", lambda profile: profile["nulls"] + profile["nans"]),
        _of_profile("distinct", "distinct"),
        _of_profile("mean", "mean"),
        _of_profile("least", "least"),
        _of_profile("median", lambda profile: profile["quantiles"].get("50%")),
        _of_profile("greatest", "greatest"),
        _of_profile("most frequent", _frequent, is_figure=False),
    ),
    order=FIELD_DRIFT.order,
)

PROFILES_SHOWN = without(PROFILES, "kind")

EXPECTATION = Column("expectation", lambda row: cut(row["expectation"].removeprefix("expect_"), MAX_NAME))
STATUS = Column("status", lambda row: STATUSES[row["status"]][0], tone=lambda row: STATUSES[row["status"]][1])
EXPECTATIONS = Observation(
    title="Expectations, violated ones first",
    rows="expectations",
    columns=(
        Column("dataset", "dataset", page=_leads_to("/quality", "dataset", "dataset")),
        EXPECTATION,
        STATUS,
        Column("since", lambda row: instant(row.get("status_since"))),
        # Users see "strict" beside the share if the check refuses the rows that fail it.
        figure("should pass", lambda row: share(row["mostly"]) + (", strict" if row.get("strict") else "")),
        figure("last hour", lambda row: share(row["last_hour"]["rate"])),
        figure("last day", lambda row: share(row["last_day"]["rate"])),
        figure("passed", lambda row: share(row["total"]["rate"])),
        figure("rows", lambda row: row["total"]["evaluated"]),
        figure("failed", lambda row: row["total"]["failed"]),
    ),
    order=lambda row: (list(STATUSES).index(row["status"]), row["dataset"]),
)
# The results that the server stored last have no counts of the last hour and day.
EXPECTATIONS_FOUND = replace(
    without(EXPECTATIONS, "last hour", "last day"),
    title="Expectations, violated ones first, as the server found them last",
)
FAILURES = Observation(
    title="Some rows that failed",
    rows=lambda answer: [
        {**row, "dataset": one["dataset"], "expectation": one["expectation"]}
        for one in rows_of(EXPECTATIONS, answer)
        if one["status"] == "violated"
        for row in one["samples"]
    ],
    columns=(
        Column("event time", "at"),
        Column("dataset", "dataset"),
        EXPECTATION,
        Column("values", lambda row: cut(json.dumps(row["values"], ensure_ascii=False, default=str), 100)),
    ),
)

FRESHNESS = Observation(
    title="How old what queries read is, measured by heartbeats",
    rows="datasets",
    columns=(
        Column("dataset", "dataset", page=_leads_to("/dataset", "name", "dataset")),
        figure("age", lambda row: seconds(row["seconds"])),
        figure("delay", lambda row: seconds(row["delay_seconds"])),
        Column("readable until", lambda row: instant(row["served_until"])),
        Column("waits for", lambda row: row["waits_for"] or "nothing"),
    ),
    order=lambda row: (-(row["seconds"] or 0.0), row["dataset"]),
)
