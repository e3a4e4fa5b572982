"""Offline reads of the cases of a run: from tables that have a part of the records, and from the topics' rest."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from caraway.compute.query.model import Rows
from caraway.dataplane.archive.follower import Follower
from caraway.dataplane.archive.store.model import archived_topics
from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.index.storage.intervals import is_divisible
from caraway.expr.polars.values import to_polars
from caraway.offline.reader import OfflineReader
from caraway.offline.spark.dividing import IDENTITIES, DividedTopic, divided_part, gathered
from caraway.offline.spark.pieces import Piece, decoded, divisions_of, encoded
from caraway.offline.spark.work import DividedDataset, columns_read
from tests.parity.traffic import Part

# Few records in a part, and few divisions, make records of one key come from several parts.
DIVISIONS, MESSAGES = 3, 40


class Archived:
    """The archive of a run's topics."""

    def __init__(self, servers: str, objects: Path) -> None:
        """Archive into a folder."""
        self._servers = servers
        self._objects = str(objects)
        self._scratch = objects.parent

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

    def read_divided(
        self,
        part: Part,
        dataset: str,
        asked: Sequence[tuple[tuple[object, ...], int]],
        columns: Sequence[str],
        limit: int,
    ) -> Rows | None:
        """Read keys as the tasks of Spark do, each from the records of its division; None if that can't be divided.

        If the records of a division have more bytes than the limit, they are divided by time as well, on the disk.
        """
        plan = part.index(dataset)
        if not is_divisible(plan):
            return None
        source = ArchivedTopics(self._servers, self._objects, cuts_now(self._servers, archived_topics([part.plan])))
        topic = next(topic for topic in part.plan.topics if topic.name == plan.topic)
        needed = tuple(columns_read(plan, list(columns), known=False))
        records = DividedDataset(plan=plan, columns=needed, found=source.parts(topic, MESSAGES))
        pieces = [
            piece for found in records.found.parts for piece in divided_part(source, records, topic, found, DIVISIONS)
        ]
        if plan.revised:
            assert all(piece.kind == IDENTITIES for piece in pieces)
            pieces = [piece for some in _by_division(pieces).values() for piece in gathered(topic, dataset, some)]
        keys = {field.name for field in plan.schema.keys}
        order = [field.name for field in plan.fields if field.name in keys]
        parts = [to_polars(k.name, [key[order.index(k.name)] for key, _ in asked], k.dtype) for k in plan.schema.keys]
        divisions = divisions_of(plan.schema.keys, parts, DIVISIONS)
        values: list[list[object]] = [[None] * len(asked) for _ in columns]
        found = [False] * len(asked)
        for division in range(DIVISIONS):
            nothing = source.nothing(topic, needed)
            rows = DividedTopic(topic, needed, nothing, limit=limit, base=self._scratch)
            for piece in _by_division(pieces)[division]:
                rows.add(decoded(encoded(piece.frame)))
            places = [place for place, number in enumerate(divisions) if number == division]
            with (
                closing(rows),
                OfflineReader(rows, part.plan.indexes, part.plan.topics, memory=rows.memory()) as reader,
            ):
                read, there = reader.read(
                    dataset, [asked[p][0] for p in places], [asked[p][1] for p in places], columns
                )
            for number, place in enumerate(places):
                found[place] = there[number]
                for column, some_values in zip(values, read, strict=True):
                    column[place] = some_values[number]
        return values, found


def _by_division(pieces: Iterable[Piece]) -> defaultdict[int, list[Piece]]:
    found: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        found[piece.division].append(piece)
    return found
