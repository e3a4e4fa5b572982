"""The metrics of what sources and sinks have in common."""

from prometheus_client import Counter

# The upper bounds of the buckets, in seconds, in which the durations of batches are counted. A batch from memory takes
# less than a millisecond, a batch from a table some seconds.
BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
ERROR_LOG_ROWS = Counter(
    "caraway_error_log_rows",
    "Rows, or changes for sinks, that became dead letters, by the stage at which they failed.",
    ["dataset_name", "stage"],
)


def count_letters(dataset: str, stage: str, rows: int) -> None:
    """Count rows, or changes, whose dead letters are durable."""
    if rows:
        ERROR_LOG_ROWS.labels(dataset, stage).inc(rows)
