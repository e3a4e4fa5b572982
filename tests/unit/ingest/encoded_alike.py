"""The records of a batch by column are those of its rows one by one, for tests of readers whose batches are columns."""

from caraway.ingest.sources.reader import SourceBatch
from caraway.ingest.table import RowTable
from caraway.ingest.targets import Target


def check_encoded(target: Target, batch: SourceBatch) -> None:
    """Check that all rows together become the records that each row, as it is shown, becomes alone."""
    count = len(batch.rows)
    rows = RowTable([batch.rows.row(number) for number in range(count)], {})
    together = target.encode(batch.rows, 0, count, 5)
    assert together.records == target.encode(rows, 0, count, 5).records
    assert together.errors == target.encode(rows, 0, count, 5).errors
