"""The metrics of sinks."""

from prometheus_client import Counter, Gauge, Histogram

from caraway.dataplane.topics.metrics import BUCKETS_S

ROWS = Counter(
    "caraway_sink_rows",
    "Changes that were sent to a sink: written (acknowledged) and refused (now dead letters).",
    ["sink_name", "dataset_name", "status"],
)
BACKLOG = Gauge(
    "caraway_sink_backlog", "Messages on the dataset's topic that a sink lacks.", ["sink_name", "dataset_name"]
)
FAILING = Gauge(
    "caraway_sink_failing",
    "1 while a sink can't be written, or its system refuses what it gets, else 0.",
    ["sink_name", "dataset_name"],
)
WRITTEN_AT = Gauge(
    "caraway_sink_last_success_timestamp",
    "When a system last acknowledged changes, in seconds since the epoch.",
    ["sink_name", "dataset_name"],
)
WRITES = Histogram(
    "caraway_sink_write_seconds",
    "The seconds of a write of a batch of changes, until the system has acknowledged them.",
    ["sink_name", "dataset_name"],
    buckets=BUCKETS_S,
)


def count(sink: str, dataset: str, *, written: int, refused: int) -> None:
    """Count the changes of a batch that was acknowledged."""
    for status, rows in (("written", written), ("refused", refused)):
        if rows:
            ROWS.labels(sink, dataset, status).inc(rows)


def observe_write(sink: str, dataset: str, seconds: float) -> None:
    """Count a write that was acknowledged."""
    WRITES.labels(sink, dataset).observe(seconds)
