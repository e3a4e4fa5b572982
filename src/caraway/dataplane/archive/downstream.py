"""Erasures downstream: the rows leave the archive and the topic of their dataset, and their files are removed.

A topic has no way to remove single records. But the archive has all records of the topic, and readers of the topic read
what it lacks from the archive. So first the erased rows are removed from the table, and then all records before some
offset from the topic. After that their results are computed again (`caraway.apps.server.erasure.recomputing`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import structlog

from caraway.dataplane.archive.trimming import processed, remove_before
from caraway.dataplane.topics.erased_keys import encode_erasure
from caraway.dataplane.topics.erasure_places import ARCHIVE, ARCHIVE_FILES, TOPIC
from caraway.dataplane.topics.positions import Offsets, is_behind
from caraway.dataplane.topics.segments import begin_files_with
from caraway.graph.plan.model import JobPlan
from caraway.state.erasures import ErasureLog, ErasureRecord, erasure_by

LOG = structlog.get_logger(__name__)

# Within two seconds, all servers know of an erasure, and write no further rows of its key. So after this time the end
# of the topic is behind the last row of the key, and the topic can be cut there.
SETTLED = timedelta(seconds=5)

# Returns all jobs that are to run, each with the figures that its engine reported last.
Jobs = Callable[[], Iterable[tuple[JobPlan, Mapping[str, Any]]]]


class Tables(Protocol):
    """The tables of topics (`caraway.dataplane.archive.follower.Follower`)."""

    def archived(self) -> Offsets:
        """Return the offset of the next message to archive of each partition, by topic."""

    def erase(self, topic: str) -> bool:
        """Remove the rows of erased keys from the table of a topic; return whether none is left."""

    def vacuum(self, topic: str, hours: int) -> bool:
        """Remove files of a table that were replaced `hours` ago; return whether that was possible."""


class DownstreamErasures:
    """Carries erasures downstream out on the topics of this process. Not thread safe; each step may be repeated.

    Its methods raise `UnavailableError` if Postgres, the broker or the object store doesn't answer.
    """

    def __init__(self, log: ErasureLog, bootstrap_servers: str, *, replaced_hours: int) -> None:
        """Read erasures from `log`. Files that had erased rows are removed `replaced_hours` after their replacement."""
        self._log = log
        self._bootstrap_servers = bootstrap_servers
        self._hours = replaced_hours

    def step(self, tables: Tables, topics: Collection[str], jobs: Jobs) -> None:
        """Do what can be done now.

        Args:
            tables: The tables of the topics.
            topics: The topics that this process archives.
            jobs: Returns the jobs.
        """
        records = self._log.downstream(topics, without=ARCHIVE_FILES) if topics else []
        if not records:
            return
        if any(record.cut is None for record in records):
            for topic, found in _by_topic(self._log.settled(topics, SETTLED)).items():
                self._cut(topic, found)
        reached = processed(jobs())
        archived = tables.archived()
        for topic, found in _by_topic(records).items():
            self._archive(tables, topic, [r for r in found if _has_reached(archived.get(topic, {}), r)])
            self._trim([r for r in found if r.left(ARCHIVE) and not r.left(TOPIC)], topic, reached)
            self._vacuum(tables, topic, [r for r in found if r.left(TOPIC)])

    def forget(self, topic: str) -> None:
        """Note that a topic is removed, with its table and with everything that was computed from it."""
        numbers = [record.id for record in self._log.downstream([topic], without=ARCHIVE_FILES)]
        for place in (ARCHIVE, TOPIC, ARCHIVE_FILES):
            self._log.done(numbers, place)

    def _cut(self, topic: str, records: Collection[ErasureRecord]) -> None:
        """Find offsets behind which a topic has no erased row, and have it begin new files before them."""
        # The records that announce the erasures are written behind the cut, so that indexes which are built later read
        # them.
        announcements = [encode_erasure(erasure_by(record.key)) for record in records]
        ends = begin_files_with(self._bootstrap_servers, topic, announcements)
        self._log.cut([record.id for record in records], ends)
        LOG.info("a topic has no row of erased keys from some offsets on", topic=topic, offsets=ends)

    def _archive(self, tables: Tables, topic: str, records: Collection[ErasureRecord]) -> None:
        waiting = [record.id for record in records if not record.left(ARCHIVE)]
        if waiting and tables.erase(topic):
            self._log.done(waiting, ARCHIVE)

    def _trim(self, records: Collection[ErasureRecord], topic: str, reached: Offsets) -> None:
        """Remove the records before the cuts from a topic, once all jobs that read it have processed them."""
        ready = [record for record in records if topic not in reached or _has_reached(reached[topic], record)]
        if not ready:
            return
        offsets: dict[int, int] = {}
        for record in ready:
            for partition, offset in (record.cut or {}).items():
                offsets[partition] = max(offset, offsets.get(partition, 0))
        remove_before(self._bootstrap_servers, {topic: offsets})
        self._log.done([record.id for record in ready], TOPIC)
        LOG.info("removed the records before an erasure from a topic", topic=topic, begins=offsets)

    def _vacuum(self, tables: Tables, topic: str, records: Collection[ErasureRecord]) -> None:
        """Remove the files that had erased rows, once no reader can have begun with them."""
        age = timedelta(hours=self._hours)
        now = datetime.now(UTC)
        due = [record.id for record in records if (at := record.left(ARCHIVE)) is not None and now - at >= age]
        if due and tables.vacuum(topic, self._hours):
            self._log.done(due, ARCHIVE_FILES)


def _by_topic(records: Iterable[ErasureRecord]) -> dict[str, list[ErasureRecord]]:
    found: dict[str, list[ErasureRecord]] = {}
    for record in records:
        found.setdefault(record.key.topic, []).append(record)
    return found


def _has_reached(positions: Mapping[int, int], record: ErasureRecord) -> bool:
    """Return whether positions on a topic are behind all of its rows of an erased key."""
    return record.cut is not None and is_behind(positions, record.cut)
