"""The metrics of sinks."""

from prometheus_client import Counter, Gauge

ROWS = Counter(
    "caraway_sink_rows",
    "Changes that were sent to a sink: written (acknowledged) and refused (now dead letters).",
    ["sink_name", "dataset_name", "status"],
)
BACKLOG = Gauge(
    "caraway_sink_backlog", "Messages on the dataset's topic that a sink lacks.", ["sink_name", "dataset_name"]
)


def count(sink: str, dataset: str, *, written: int, refused: int) -> None:
    """Count the changes of a batch."""
    for status, rows in (("written", written), ("refused", refused)):
        if rows:
            ROWS.labels(sink, dataset, status).inc(rows)
