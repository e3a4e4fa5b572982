"""The rows that a dataset has now, from all of its records: those in the archive, and those that only the topic has."""

from collections.abc import Iterator

import polars as pl

from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.sources.reader import LiveRow, LiveRows
from caraway.dataplane.topics.codec import PUT
from caraway.graph.plan.model import TopicPlan

# The newest records of about this many keys are in memory at a time, which takes some hundred MB. If a topic has more
# records than this, all records are read several times, each time for another share of the keys.
SHARE_RECORDS = 5_000_000


def live_rows_of(bootstrap_servers: str, objects_url: str, topic: TopicPlan) -> LiveRows:
    """Return the function that reads the rows which a dataset with keys has now, as far as they are durable.

    Args:
        bootstrap_servers: The broker, "host:port".
        objects_url: The object store with the archive.
        topic: The topic of the dataset, whose records come from sources.
    """

    def read() -> Iterator[LiveRow | None]:
        source = ArchivedTopics(bootstrap_servers, objects_url, cuts_now(bootstrap_servers, [topic.name]))
        shares = source.rows(topic) // SHARE_RECORDS + 1
        for share in range(shares):
            yield from _live(source, topic, shares, share)

    return read


def _live(source: ArchivedTopics, topic: TopicPlan, shares: int, share: int) -> Iterator[LiveRow | None]:
    """Yield the live rows whose keys are in a share; None after each piece of records."""
    columns = columns_of(topic.schema)
    keys = [key.name for key in topic.schema.keys]
    # The newest record of a key has the greatest event time, and among equal ones the greatest position. All records of
    # a key are in one partition.
    order = [columns.time, columns.offset, columns.number]
    wanted = [*keys, *order, columns.op]
    newest: pl.DataFrame | None = None
    for piece in source.pieces(topic, keys):
        rows = piece.rows.select(wanted)
        if shares > 1:
            rows = rows.filter(pl.struct(keys).hash(seed=0) % shares == share)
        both = rows if newest is None else pl.concat([newest, rows])
        newest = both.sort(order).unique(keys, keep="last")
        yield None
    if newest is None:
        return
    live = newest.filter(pl.col(columns.op) == PUT).sort(order)
    times = live[columns.time].dt.epoch("us")
    for row, at_us in zip(live.select(keys).iter_rows(named=True), times, strict=True):
        yield LiveRow(key=row, at_us=at_us)
