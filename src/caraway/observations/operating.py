"""Observations of a deployment: jobs, sources, sinks, the archive, tokens, and the audit log."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from caraway.observations.figures import duration, instant, number, size
from caraway.observations.observation import Column, Observation, Row, figure, without
from caraway.process.estimates import duration as estimate

# The states in which a job, a source or a sink is fine, and the states in which somebody has to act. In all other
# states it waits.
GOOD = frozenset({"running", "reading", "writing", "standby", "closed"})
BAD = frozenset({"failing", "refused", "not reported", "paused"})
# The phases in which a job reads its history.
HISTORY = frozenset({"archive", "backfill"})
# The kind of the archive's table with the served features, whose rows belong to no single dataset.
SERVED_ROWS = "rows of all branches"


def _tone(row: Row) -> str:
    return "good" if row["state"] in GOOD else "bad" if row["state"] in BAD else "waits"


def _time(name: str, member: str, *, is_age: bool = False) -> Column:
    return Column(name, lambda row: instant(row.get(member)), is_age=is_age, is_figure=is_age)


def _progress(name: str, member: str, shown: Callable[[Any], object] = lambda value: value) -> Column:
    return figure(name, lambda row: shown(row["progress"].get(member)))


def _doing(row: Row) -> str:
    """Return the phase of a job, with the time that is left if it reads its history."""
    phase, lag, rate = (row["progress"].get(name) for name in ("phase", "lag_records", "rows_per_second"))
    return f"{phase}, {estimate(lag / rate)} left" if phase in HISTORY and lag and rate else phase or ""


def _megabytes(value: float | None) -> str | None:
    return None if value is None else f"{value / 1e6:.1f} MB"


def _loaded(progress: Mapping[str, Any] | None) -> str | None:
    if progress is None:
        return None
    text = f"{number(progress['done'])} of {number(progress['total'])} {progress['unit']}"
    if progress["per_second"] is not None:
        text += f", {progress['per_second']:,.0f}/s"
    if progress["remaining_seconds"] is not None:
        text += f", {timedelta(seconds=round(progress['remaining_seconds']))} left"
    return text


STATE = Column("state", "state", tone=_tone)
DATASET = Column("dataset", "dataset")
ID, MODE = Column("id", "id"), Column("mode", "mode")
DEAD_LETTERS = figure("dead letters", "dead_letters")
ERROR = Column("error", "error")

JOBS = Observation(
    title="Jobs, running ones last",
    rows="jobs",
    columns=(
        ID,
        Column(
            "job", lambda row: f"{row['dataset']}.{row['pipeline']}", page=lambda row: ("/job", {"name": row["id"]})
        ),
        STATE,
        MODE,
        Column("doing", _doing),
        _progress("behind, records", "lag_records"),
        _progress("behind", "lag_seconds", duration),
        _progress("rows/s", "rows_per_second"),
        _progress("memory", "state_bytes", _megabytes),
        _progress("checkpoint, ms", "checkpoint_ms"),
        _progress("dead letters", "dead_letters"),
        figure("starts", "attempts"),
        Column("engine", lambda row: row["progress"].get("engine")),
        _time("reported", "updated_at", is_age=True),
    ),
    order=lambda row: (row["state"] == "running", -(row["progress"].get("lag_seconds") or 0.0), row["dataset"]),
)
JOBS_SHOWN = without(JOBS, "id", "memory", "checkpoint, ms", "engine")
JOBS_LISTED = without(JOBS_SHOWN, "mode", "doing", "dead letters", "starts")
JOBS_OF_STATUS = replace(JOBS, columns=(ID, STATE, MODE, ERROR))

SOURCES = Observation(
    title="Sources that the server reads",
    rows="sources",
    columns=(
        Column("source", "source", page=lambda row: ("/source", {"name": row["source"]})),
        DATASET,
        STATE,
        figure("rows behind", "lag"),
        figure("rows read", "rows"),
        Column("progress", lambda row: _loaded(row["progress"])),
        _time("last row", "read_at", is_age=True),
        _time("last answer", "polled_at", is_age=True),
        DEAD_LETTERS,
        ERROR,
    ),
)
SOURCES_LISTED = without(SOURCES, "rows read", "progress", "last answer", "error")
SINKS = Observation(
    title="Sinks that the server writes",
    rows="sinks",
    columns=(
        Column("sink", "sink", page=lambda row: ("/sink", {"name": row["sink"]})),
        Column("writes", "target"),
        DATASET,
        STATE,
        Column("guarantee", lambda row: row["guarantee"] or "not known here"),
        figure("messages behind", "backlog"),
        _time("last write", "written_at", is_age=True),
        DEAD_LETTERS,
        ERROR,
    ),
)
SINKS_LISTED = without(SINKS, "writes", "guarantee", "error")

ARCHIVE = Observation(
    title="Tables of the archive, those that are behind most first",
    rows="tables",
    columns=(
        Column(
            "dataset",
            "dataset",
            page=lambda row: None if row["kind"] == SERVED_ROWS else ("/dataset", {"name": row["dataset"]}),
        ),
        Column("kind", "kind"),
        figure("records", "records"),
        figure("rows", "rows"),
        figure("files", "files"),
        figure("size", lambda row: size(row["bytes"])),
        figure("behind, messages", "messages"),
        Column("last write", lambda row: instant(row["written_at"]) or "not written yet"),
        Column("table", "url", is_code=True),
    ),
    order=lambda row: (-(row["messages"] or 0), row["dataset"]),
)

TOKENS = Observation(
    title="Tokens, newest first, of which only hashes are kept",
    rows="tokens",
    columns=(
        Column("id", "id", is_code=True),
        Column("account", "account"),
        Column("kind", "kind"),
        Column("roles", lambda row: ", ".join(row["roles"]) or "none"),
        Column("purpose", lambda row: row["note"][:100]),
        _time("made", "created_at"),
        Column("valid until", lambda row: instant(row["expires_at"]) or "it is revoked"),
        _time("revoked", "revoked_at"),
    ),
)

AUDIT = Observation(
    title="Lines of the audit log, newest first",
    rows="audit",
    columns=(
        figure("number", "number"),
        _time("at", "at"),
        Column("account", lambda row: row["account"] or "anybody"),
        Column("token", "token", is_code=True),
        Column("action", "action"),
        Column("branch", "branch"),
        Column("outcome", "outcome"),
        figure("times", "times"),
        # The details come from requests, including requests that were refused.
        Column("details", "detail"),
    ),
)
