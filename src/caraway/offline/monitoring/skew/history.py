"""The records from which features are computed again, also as they were known earlier."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from caraway.dataplane.archive.store.reading import ArchivedRecords, ArchivedTopics, Cuts, TopicParts
from caraway.graph.plan.model import TopicPlan
from caraway.offline.history.records import TopicRecords


class PlacedTopics(ArchivedTopics):
    """The records of topics; where they are is looked up once."""

    def __init__(self, bootstrap_servers: str, objects_url: str, cuts: Cuts) -> None:
        """Read up to `cuts`; see `ArchivedTopics`."""
        super().__init__(bootstrap_servers, objects_url, cuts)
        self._places: dict[tuple[str, int | None], TopicParts] = {}

    def parts(self, topic: TopicPlan, messages: int | None = None) -> TopicParts:
        """Return where the records of a topic are; see `ArchivedTopics.parts`."""
        key = topic.name, messages
        if key not in self._places:
            self._places[key] = super().parts(topic, messages)
        return self._places[key]


class LaterRecords(TopicRecords):
    """Records as if they had been ingested later than they were.

    A reader that sees only what had been ingested by the time of a read (`OfflineReader`, `known`) then sees what was
    known earlier by that time.
    """

    def __init__(self, source: TopicRecords, later_us: int) -> None:
        """Move the times of ingestion of the records of `source` by `later_us`."""
        self._source = source
        self._later_us = later_us

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records of a topic; see `TopicRecords.records`."""
        return self._moved(self._source.records(topic, wanted))

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterator[ArchivedRecords]:
        """Yield the records of a topic some at a time; see `TopicRecords.pieces`."""
        return map(self._moved, self._source.pieces(topic, wanted))

    def rows(self, topic: TopicPlan) -> int:
        """Return how many records a topic has, about."""
        return self._source.rows(topic)

    def _moved(self, found: ArchivedRecords) -> ArchivedRecords:
        moved = pl.col(found.columns.ingested) + pl.duration(microseconds=self._later_us)
        return replace(found, rows=found.rows.with_columns(moved))
