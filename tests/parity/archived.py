"""Offline reads of the cases of a run: from tables that have a part of the records, and from the topics' rest."""

from collections.abc import Sequence
from pathlib import Path

from caraway.archive.follower import Follower
from caraway.archive.model import archived_topics
from caraway.archive.reading import ArchivedTopics, cuts_now
from caraway.offline.reader import OfflineReader
from caraway.query.model import Rows
from tests.parity.traffic import Part


class Archived:
    """The archive of a run's topics."""

    def __init__(self, servers: str, objects: Path) -> None:
        """Archive into a folder."""
        self._servers = servers
        self._objects = str(objects)

    def archive(self, parts: Sequence[Part], *, steps: int) -> None:
        """Archive what is read in so many steps, which may be less than all; the others stay on their topics."""
        follower = Follower(self._servers, self._objects, seconds=0.0)
        follower.follow(archived_topics(part.plan for part in parts))
        for _ in range(steps):
            follower.step()
        follower.flush()
        follower.close()

    def read(
        self, part: Part, dataset: str, asked: Sequence[tuple[tuple[object, ...], int]], columns: Sequence[str]
    ) -> Rows:
        """Read keys of a dataset, each at its time."""
        topics = archived_topics([part.plan])
        source = ArchivedTopics(self._servers, self._objects, cuts_now(self._servers, topics))
        with OfflineReader(source, part.plan.indexes, part.plan.topics) as reader:
            return reader.read(dataset, [key for key, _ in asked], [at_us for _, at_us in asked], columns)
