"""Offline queries as plain data."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

# The folder of offline queries in the object store.
FOLDER = "offline"
# The names of the objects in a query's folder that store its rows, if the rows came with the request.
JSON_INPUT, ARROW_INPUT = "input.json", "input.arrow"
MANIFEST = "manifest.json"


class QueryStatus(StrEnum):
    """The state of an offline query."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True if the query won't change any more."""
        return self not in {QueryStatus.WAITING, QueryStatus.RUNNING}


class Execution(StrEnum):
    """The choice of where an offline query is computed."""

    AUTO = "auto"
    PROCESS = "process"
    SPARK = "spark"


class StoredRows(Struct, frozen=True, tag="stored"):
    """Rows that came with the request: an object of the store, JSON_INPUT or ARROW_INPUT."""

    name: str


class Place(Struct, frozen=True, tag="files"):
    """Files below an address.

    Attributes:
        url: The address of a folder or a file, such as `s3://bucket/prefix`.
        format: "parquet", "csv", "json" (an object a line) or "delta".
        delimiter: The delimiter of CSV.
        headers: The names of the columns of CSV files without a header.
        columns: The column of each feature, by the feature's full name; others are named by it.
        role_arn: The role of AWS with which the files are read.
        credentials: The sealed access keys, and the name of the key that seals them.
    """

    url: str
    format: str = "parquet"
    delimiter: str = ","
    headers: tuple[str, ...] | None = None
    columns: dict[str, str] = field(default_factory=dict)
    role_arn: str | None = None
    credentials: tuple[str, str] | None = None


class WhyRequest(Struct, frozen=True, kw_only=True):
    """The request of an explanation (docs/guides/why.md), whose inputs are the object JSON_INPUT of the query.

    Attributes:
        feature: The full name of the feature.
        at_us: The time as of which it is explained in microseconds.
        as_known: Only records count that had been ingested by then.
        offset: How many parts of a lookup come before the listed ones.
        limit: How many are listed at most.
        sample: List a sample of them.
        hidden: Datasets, and fields as `Dataset.field`, that the caller may not read, each with the reason.
    """

    feature: str
    at_us: int
    as_known: bool = False
    offset: int = 0
    limit: int = 100
    sample: bool = False
    hidden: dict[str, str] = field(default_factory=dict)


class LoadRequest(Struct, frozen=True, kw_only=True):
    """The request of the tables of an index (docs/inside/rocksdb_index.md, "Loads"), which a server then takes.

    Attributes:
        asset: The index, in hexadecimal digits.
        number: The shard whose partitions are in the tables.
        shards: The number of shards; 1 if the index isn't divided.
    """

    asset: str
    number: int = 0
    shards: int = 1

    def holds(self, partition: int) -> bool:
        """Return whether a partition of the topic is in the tables."""
        return partition % self.shards == self.number


class OfflineRequest(Struct, frozen=True, kw_only=True):
    """The request of an offline query.

    `rows` are its input, `output` is the place of its results, None for the server's own. If it is `as_known`, a row
    sees only records that had been ingested by its time. With `before`, it sees what there was just before its time.
    `execution` is where it is computed, AUTO: on Spark if its
    records don't fit into the memory of a process. If there is a `why`, it asks for the explanation of one value; if
    there is a `load`, for the tables of an index.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    timestamp_column: str
    rows: StoredRows | Place
    output: Place | None = None
    as_known: bool = False
    before: bool = False
    execution: Execution = Execution.AUTO
    why: WhyRequest | None = None
    load: LoadRequest | None = None


class Part(Struct, frozen=True):
    """A part of the result that is written: its rows, how many failed, and how many asked for more history.

    `own_events` is the share of its rows whose lookups have changed at the rows' own times, as far as was looked.
    `bytes` is the size of its file. `seconds` has those of the steps that computed and wrote it.
    """

    rows: int
    failed: int
    short: int = 0
    own_events: float = 0.0
    bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class OfflineQuery(Struct, frozen=True, kw_only=True):
    """An offline query, as it is recorded.

    Attributes:
        id: Its id.
        branch: The branch on which it was asked.
        commit: The commit that the branch served then.
        account: The account that asked.
        workflow: Its label.
        request: The request.
        cuts: The offsets up to which topics are read, by topic and partition; None before it has begun.
        status: Its state.
        cancelled: True if its end was requested.
        rows: The number of its rows; None before it is known.
        parts: The parts of the result that are written, in order.
        attempts: How often it was begun since the last part.
        error: Why it failed, or why the last attempt ended.
        asked_at: The time of the request.
        ended_at: The time of its end.
    """

    id: str
    branch: str
    commit: str
    account: str
    workflow: str
    request: OfflineRequest
    cuts: dict[str, dict[int, int]] | None
    status: QueryStatus
    cancelled: bool
    rows: int | None
    parts: tuple[Part, ...]
    attempts: int
    error: str | None
    asked_at: datetime
    ended_at: datetime | None

    @property
    def rows_done(self) -> int:
        """The number of rows whose results are written."""
        return sum(part.rows for part in self.parts)

    @property
    def rows_short(self) -> int:
        """The number of rows that asked for more history than there is."""
        return sum(part.short for part in self.parts)

    @property
    def own_events(self) -> float:
        """The share of the first rows whose lookups have changed at the rows' own times."""
        return self.parts[0].own_events if self.parts else 0.0

    @property
    def rows_failed(self) -> int:
        """The number of rows that failed."""
        return sum(part.failed for part in self.parts)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of the steps that computed and wrote the parts."""
        names = dict.fromkeys(name for part in self.parts for name in part.seconds)
        return {name: round(sum(part.seconds.get(name, 0.0) for part in self.parts), 6) for name in names}

    def answer(self, bucket: str, prefix: str) -> dict[str, Any]:
        """Return the progress as the API shows it, given where the results are."""
        rows = self.rows or 0
        whole = 1.0 if self.status is QueryStatus.SUCCEEDED else 0.0
        return {
            "request_id": self.id,
            "output_bucket": bucket,
            "output_prefix": prefix,
            "completion_rate": self.rows_done / rows if rows else whole,
            "failure_rate": self.rows_failed / self.rows_done if self.rows_done else 0.0,
            "status": self.status.value,
            "rows": self.rows,
            "rows_done": self.rows_done,
            "rows_failed": self.rows_failed,
            "rows_short": self.rows_short,
            "own_events": self.own_events,
            "parts": len(self.parts),
            "bytes": sum(part.bytes for part in self.parts),
            "seconds": self.seconds,
            "error": self.error,
            "asked_at": self.asked_at.isoformat(),
            "ended_at": None if self.ended_at is None else self.ended_at.isoformat(),
        }


def folder_of(query_id: str) -> str:
    """Return the folder of a query in the object store, which has its rows if they came with the request."""
    return f"{FOLDER}/{query_id}"


def part_name(number: int) -> str:
    """Return the name of a file of results."""
    return f"part-{number:05d}.parquet"
