"""The metrics of ingestion. Rows are counted once they are durable: per batch of a source, per request of a webhook."""

from prometheus_client import Counter, Histogram

from caraway.dataplane.ingest.row_counts import RowCounts
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.metrics import BUCKETS_S, count_letters

SOURCE_ROWS = Counter(
    "caraway_source_dataset_counter",
    "Rows of a source: msgs_read, and of these msgs_processed (admitted), schema_error (refused) and duplicate.",
    ["source_name", "dataset_name", "format", "metric"],
)
FILTERED_ROWS = Counter(
    "caraway_source_filtered_rows",
    "Rows that a source leaves out, by the reason.",
    ["source_name", "dataset_name", "reason"],
)
SOURCE_BYTES = Counter(
    "caraway_source_bytes", "Bytes that were read from a source.", ["source_name", "dataset_name", "format"]
)
POLLS = Histogram(
    "caraway_source_poll_seconds",
    "The seconds of a poll of a source that yielded rows, until these were durable.",
    ["source_name", "dataset_name"],
    buckets=BUCKETS_S,
)


def observe_poll(target: Target, seconds: float) -> None:
    """Count a poll that yielded rows."""
    POLLS.labels(target.system, target.dataset).observe(seconds)


def count(target: Target, rows: RowCounts) -> None:
    """Count rows of a source that are durable now."""
    source, dataset, encoding = target.system, target.dataset, target.format
    kinds = {
        "msgs_read": rows.read,
        "msgs_processed": rows.admitted,
        "schema_error": rows.refused.total(),
        "duplicate": rows.duplicates,
    }
    for metric, number in kinds.items():
        if number:
            SOURCE_ROWS.labels(source, dataset, encoding, metric).inc(number)
    for reason, number in rows.left_out.items():
        FILTERED_ROWS.labels(source, dataset, reason.value).inc(number)
    for stage, number in rows.refused.items():
        count_letters(dataset, stage.value, number)


def count_bytes(target: Target, size: int) -> None:
    """Count bytes that were read from a source."""
    SOURCE_BYTES.labels(target.system, target.dataset, target.format).inc(size)
