"""The parts of Kafka and Postgres that a worker needs, as protocols, so that its tests can have it in memory."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from caraway.dataplane.ingest.marks import Starts, Written
from caraway.dataplane.sources.positions import Checkpoint


class Topics(Protocol):
    """The topics that a worker writes to (`caraway.dataplane.sources.topics.SourceTopics`)."""

    def ends(self, names: Sequence[str]) -> Starts:
        """Return the offset that the next record of each partition will have."""
        ...

    def marks(self, starts: Starts, header: str, key: str) -> Written:
        """Return the marks of a source on the records from some offsets until now."""
        ...


class Positions(Protocol):
    """The store of checkpoints (`caraway.dataplane.sources.positions.SourcePositions`)."""

    def load(self, source: str) -> Checkpoint | None:
        """Return the last checkpoint."""
        ...

    def items(self, source: str) -> dict[str, bytes]:
        """Return what the reader remembers beside its position."""
        ...

    def save(self, source: str, token: int, checkpoint: Checkpoint, items: Mapping[str, bytes | None]) -> bool:
        """Replace the checkpoint and change items, unless a later owner has saved a checkpoint."""
        ...
