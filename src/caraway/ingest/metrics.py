"""The counters of ingestion."""

from prometheus_client import Counter, Histogram

from caraway.ingest.targets import Target

SOURCE_ROWS = Counter(
    "caraway_source_dataset_counter",
    "Rows that came in: msgs_processed (accepted) and schema_error (refused).",
    ["source_name", "dataset_name", "format", "metric"],
)
FILTERED_ROWS = Counter(
    "caraway_source_filtered_rows",
    "Rows that where, since, until or sample left out.",
    ["source_name", "dataset_name"],
)
SOURCE_BYTES = Counter(
    "caraway_source_bytes", "Bytes that were read from a source.", ["source_name", "dataset_name", "format"]
)
POLLS = Histogram(
    "caraway_source_poll_seconds",
    "The seconds of a poll of a source that yielded rows, until these were durable.",
    ["source_name", "dataset_name"],
)


def observe_poll(target: Target, seconds: float) -> None:
    """Count a poll that yielded rows."""
    POLLS.labels(target.system, target.dataset).observe(seconds)


def count(target: Target, *, accepted: int, refused: int, filtered: int = 0) -> None:
    """Count the rows of a payload."""
    source, dataset, encoding = target.system, target.dataset, target.format
    if accepted:
        SOURCE_ROWS.labels(source, dataset, encoding, "msgs_processed").inc(accepted)
    if refused:
        SOURCE_ROWS.labels(source, dataset, encoding, "schema_error").inc(refused)
    if filtered:
        FILTERED_ROWS.labels(source, dataset).inc(filtered)


def count_bytes(target: Target, size: int) -> None:
    """Count bytes that were read from a source."""
    SOURCE_BYTES.labels(target.system, target.dataset, target.format).inc(size)
