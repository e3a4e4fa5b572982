"""The parts of a topic while the archive goes on and the topic is cut: each record is in one of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from caraway.dataplane.archive.served import SERVED_PLAN
from caraway.dataplane.archive.store import reading
from caraway.dataplane.archive.store.reading import ArchivedTopics

TOPIC, END = SERVED_PLAN.name, 300


@dataclass
class Deployment:
    """A broker and a table; the record at each offset is one row.

    Attributes:
        moves: The number of the question after which the archive goes on, and the topic is cut where its table ends.
        archived: The offset of the next record to archive.
        begins: The oldest offset of the topic.
    """

    moves: int
    archived: int = 100
    begins: int = 0
    asked: int = 0

    def answered(self) -> None:
        self.asked += 1
        if self.asked == self.moves:
            self.archived = self.begins = 200

    def existing(self, *_: object) -> "Table":
        table = Table(self.archived)
        self.answered()
        return table

    def ends(self, _: str) -> "Deployment":
        return self

    def beginnings(self, names: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
        found = {name: {0: self.begins} for name in names}
        self.answered()
        return found


@dataclass
class Table:
    """A table at the moment at which it was opened."""

    end: int

    def positions(self, partitions: Iterable[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self.end)

    def files(self) -> Sequence[tuple[str, int]]:
        return [("file", self.end)]

    def least_instant(self, _: str) -> None:
        return None

    def options(self) -> Mapping[str, str]:
        return {}


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_records_that_are_archived_and_cut_between_two_questions_are_in_a_part(
    monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    deployment: Any = Deployment(moves)
    monkeypatch.setattr(reading, "ArchiveTable", deployment)
    monkeypatch.setattr(reading, "TopicEnds", deployment.ends)
    monkeypatch.setattr(reading, "topic_id", lambda *_: "id")
    found = ArchivedTopics("broker", "objects", {TOPIC: {0: END}}).parts(SERVED_PLAN)
    (file, span) = found.parts
    # If the topic is cut after both questions, reading the span fails, which is noticed.
    assert (file.rows, span.first, span.end) == (found.archived[0], found.archived[0], END)
    assert found.begins == {0: 0}
