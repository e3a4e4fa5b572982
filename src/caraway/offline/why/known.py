"""Records as they were known at a time: without those that were ingested later."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl

from caraway.dataplane.archive.store.reading import ArchivedRecords
from caraway.graph.plan.model import TopicPlan
from caraway.offline.history.records import TopicRecords

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KnownRecords(TopicRecords):
    """The records that had been ingested by a time."""

    def __init__(self, source: TopicRecords, until_us: int) -> None:
        """Leave out the records of `source` that were ingested after a time in microseconds."""
        self._source = source
        self._until = _EPOCH + timedelta(microseconds=until_us)

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records of a topic; see `TopicRecords.records`."""
        return self._known(self._source.records(topic, wanted))

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterator[ArchivedRecords]:
        """Yield the records of a topic some at a time; see `TopicRecords.pieces`."""
        return map(self._known, self._source.pieces(topic, wanted))

    def rows(self, topic: TopicPlan) -> int:
        """Return how many records a topic has, about."""
        return self._source.rows(topic)

    def _known(self, found: ArchivedRecords) -> ArchivedRecords:
        return replace(found, rows=found.rows.filter(pl.col(found.columns.ingested) <= self._until))
