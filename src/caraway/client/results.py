"""The results of `Client.log` and `Client.commit`: responses of the server with attributes for what they report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from caraway.client.response import Response
from caraway.errors import InvalidInputError, RemoteError, UnavailableError
from caraway.graph.changes import Changes
from caraway.process.displays import Table, html

# The HTTP status of an answer that reports that no row was accepted.
NONE_TAKEN = 422
# The text of an error contains the reasons of at most this many refused rows.
SHOWN_REASONS = 10
# A plain `repr` contains at most this many reasons, and this many names of one kind of change. The attributes contain
# all of them.
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A refused row and the reason.

    Attributes:
        row: Its number in the logged frame, from 0.
        field: The field that doesn't fit; empty if the row as a whole is wrong.
        message: The reason.
        dataset: The dataset that refused it; empty if the server didn't report it.
    """

    row: int
    field: str
    message: str
    dataset: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class LogResult(Response):
    """The outcome of logging a frame. As a response it is the answer to the last chunk.

    Attributes:
        webhook: The webhook.
        endpoint: Its endpoint.
        chunks: The number of chunks in which the rows were sent.
        accepted: The number of rows, of all chunks, that all datasets of the endpoint accepted.
        rejected: The number of rows, of all chunks, that at least one dataset refused.
        refused: The refused rows with reasons; the server returns the first 20 of each chunk.
        warnings: Further remarks, such as on fields that no dataset has, and on times without a zone.
    """

    webhook: str = ""
    endpoint: str = ""
    chunks: int = 0
    accepted: int = 0
    rejected: int = 0
    refused: tuple[RefusedRow, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the numbers, and the first reasons."""
        reasons = "".join(f"; row {row.row}, {row.field}: {row.message}" for row in self.refused[:SHOWN])
        more = "; …" if len(self.refused) > SHOWN else ""
        counts = f"{self.accepted} accepted, {self.rejected} rejected"
        return f"LogResult({self.webhook}/{self.endpoint}: {counts}{reasons}{more})"

    def _repr_html_(self) -> str:
        facts = [f"{self.accepted:,} accepted", f"{self.rejected:,} rejected", f"{self.chunks:,} chunks"]
        rows = [(row.row, row.field, row.dataset, row.message) for row in self.refused]
        return html(
            f"{self.webhook}/{self.endpoint}",
            facts,
            [
                Table("refused", ("row", "field", "dataset", "reason"), rows),
                Table("warnings", ("warning",), [(warning,) for warning in self.warnings]),
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedJob:
    """A job of a commit.

    Attributes:
        job_id: Its id.
        dataset: The dataset that it computes.
        pipeline: The pipeline.
        mode: "real-time" or "micro-batch"; empty for a job that stops.
        reason: The reason for the mode.
        deed: The action: "start", "keep" (this branch has it already), "share" (another branch has it) or "stop".
        backfill_records: The number of existing records that it reads first; None if unknown.
        backfill_seconds: An estimate of how long that takes, in seconds.
    """

    job_id: str
    dataset: str
    pipeline: str
    mode: str
    reason: str
    deed: str
    backfill_records: int | None = 0
    backfill_seconds: float | None = 0.0

    @property
    def action(self) -> str:
        """The value of `deed`, by the word that the documentation uses."""
        return self.deed


@dataclass(frozen=True, eq=False, repr=False)
class CommitResult(Response):
    """The changes of a commit, or those that it would make if it is a preview.

    Attributes:
        commit_id: Its id; empty for a preview, and from a mock client.
        preview: True if it is a preview, and nothing was changed.
        summary: The lines that the client printed.
        datasets: The changes of datasets.
        featuresets: The changes of featuresets.
        features: The changes of features, by their full names.
        indexes: The changes of indexes.
        systems: The changes of the systems of sources and sinks, by their kinds and names.
        jobs: The jobs that start, continue or stop.
    """

    commit_id: str = ""
    preview: bool = False
    summary: tuple[str, ...] = ()
    datasets: Changes = field(default_factory=Changes)
    featuresets: Changes = field(default_factory=Changes)
    features: Changes = field(default_factory=Changes)
    indexes: Changes = field(default_factory=Changes)
    systems: Changes = field(default_factory=Changes)
    jobs: tuple[CommittedJob, ...] = ()

    @property
    def backfills(self) -> tuple[CommittedJob, ...]:
        """The jobs that read existing records before they have caught up; also those with an unknown number of them."""
        return tuple(job for job in self.jobs if job.backfill_records is None or job.backfill_records > 0)

    def __repr__(self) -> str:
        """Return a line with the entities created, changed and removed, and the number of jobs by action."""
        kinds = {
            "datasets": self.datasets,
            "featuresets": self.featuresets,
            "features": self.features,
            "systems": self.systems,
        }
        parts = [
            f"{kind} {change}: {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}"
            for kind, changes in kinds.items()
            for change in ("created", "changed", "removed")
            if (names := getattr(changes, change))
        ]
        actions = [job.action for job in self.jobs]
        parts += [f"jobs {action}: {count}" for action in dict.fromkeys(actions) if (count := actions.count(action))]
        name = "preview" if self.preview else self.commit_id
        return f"CommitResult({'; '.join(filter(None, [name, *parts])) or 'nothing changed'})"

    def _repr_html_(self) -> str:
        kinds = {
            "dataset": self.datasets,
            "featureset": self.featuresets,
            "feature": self.features,
            "index": self.indexes,
            "system": self.systems,
        }
        changed = [(kind, name, change) for kind, changes in kinds.items() for name, change in changes.rows()]
        jobs = [(job.action, job.dataset, job.pipeline, job.mode, job.reason, _backfill(job)) for job in self.jobs]
        same = sum(len(changes.unchanged) for changes in kinds.values())
        return html(
            "Preview" if self.preview else "Commit",
            [self.commit_id, "nothing was changed" if self.preview else "", f"{same} unchanged" if same else ""],
            [
                Table("entities", ("kind", "name", ""), changed),
                Table("jobs", ("", "dataset", "pipeline", "mode", "why", "backfill"), jobs),
            ],
        )


def _backfill(job: CommittedJob) -> str:
    if job.backfill_records is None:
        return "unknown: Kafka doesn't answer"
    if not job.backfill_records:
        return ""
    return f"{job.backfill_records:,} records, about {job.backfill_seconds or 0:,.0f} s"


def commit_result(response: Response) -> CommitResult:
    """Return a server's answer to a commit as a result; fields that it lacks are empty."""
    answer = response.json()
    answer = answer if isinstance(answer, dict) else {}
    changes = answer.get("changes") or {}
    return CommitResult(
        response.status_code,
        response.headers,
        response.body,
        commit_id=answer.get("commit_id") or "",
        preview=bool(answer.get("preview")),
        summary=tuple(answer.get("summary") or ()),
        datasets=_changes(changes.get("datasets")),
        featuresets=_changes(changes.get("featuresets")),
        features=_changes(changes.get("features")),
        indexes=_changes(changes.get("indexes")),
        systems=_changes(changes.get("systems")),
        jobs=tuple(CommittedJob(**job) for job in answer.get("jobs") or ()),
    )


def _changes(found: Mapping[str, Any] | None) -> Changes:
    groups = dict(found or {})
    details = {name: tuple(texts) for name, texts in groups.pop("details", {}).items()}
    return Changes(**{change: tuple(names) for change, names in groups.items()}, details=details)


def none_taken(error: RemoteError | UnavailableError) -> Response | None:
    """Return the answer to a chunk if it reports for each row why it was refused; None for other errors."""
    if not isinstance(error, RemoteError) or error.status != NONE_TAKEN:
        return None
    if not isinstance(error.body, dict) or "rejected" not in error.body:
        return None
    return Response(error.status, {}, orjson.dumps(error.body))


def refused(result: LogResult) -> InvalidInputError:
    """Return the error that names the refused rows; its `result` is the result."""
    rows = result.accepted + result.rejected
    shown = "".join(f"\n  row {row.row}, {row.field}: {row.message}" for row in result.refused[:SHOWN_REASONS])
    return RowsRefusedError(
        f"{result.webhook}/{result.endpoint} took {result.accepted} of {rows} rows; it rejected:{shown}", result=result
    )


class RowsRefusedError(InvalidInputError):
    """Some rows of a frame were refused; `result` is the whole outcome."""

    def __init__(self, message: str, *, result: LogResult) -> None:
        """Keep the result beside the text."""
        super().__init__(message)
        self.result = result


class LogReport:
    """Collects the server's answers to the chunks of a frame."""

    def __init__(self, webhook: str, endpoint: str, remarks: Iterable[str] = ()) -> None:
        """Begin with the remarks of the client, which come before those of the server."""
        self._webhook = webhook
        self._endpoint = endpoint
        self._chunks = self._accepted = self._rejected = 0
        self._refused: list[RefusedRow] = []
        self._warnings = dict.fromkeys(remarks)
        self._last = Response(200, {}, b"{}")

    def add(self, start: int, rows: int, report: Mapping[str, Any], response: Response) -> None:
        """Add the answer to the chunk of `rows` rows that begins at row `start` of the frame."""
        self._chunks += 1
        self._last = response
        rejected = int(report.get("rejected", 0))
        self._rejected += rejected
        self._accepted += int(report.get("accepted", rows - rejected))
        self._refused += [
            RefusedRow(
                row=start + int(error["row"]),
                field=str(error.get("field") or ""),
                message=str(error.get("message") or ""),
                dataset=str(error.get("dataset") or ""),
            )
            for error in report.get("errors", ())
        ]
        self._warnings |= dict.fromkeys(report.get("warnings", ()))

    def result(self) -> LogResult:
        """Return the result over all chunks."""
        return LogResult(
            self._last.status_code,
            self._last.headers,
            self._last.body,
            webhook=self._webhook,
            endpoint=self._endpoint,
            chunks=self._chunks,
            accepted=self._accepted,
            rejected=self._rejected,
            refused=tuple(self._refused),
            warnings=tuple(self._warnings),
        )
