"""The counters of ingestion."""

from prometheus_client import Counter

SOURCE_ROWS = Counter(
    "caraway_source_dataset_counter",
    "Rows that came in: msgs_processed (accepted) and schema_error (refused).",
    ["source_name", "dataset_name", "format", "metric"],
)


def count(source: str, dataset: str, *, accepted: int, refused: int) -> None:
    """Count the rows of a request."""
    if accepted:
        SOURCE_ROWS.labels(source, dataset, "json", "msgs_processed").inc(accepted)
    if refused:
        SOURCE_ROWS.labels(source, dataset, "json", "schema_error").inc(refused)
