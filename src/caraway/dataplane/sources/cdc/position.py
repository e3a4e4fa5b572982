"""The position in a table's log, and the marks of its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caraway.dataplane.sources.cdc.log import Coordinate


@dataclass(slots=True)
class Snapshot:
    """The progress of the load of the table itself.

    Attributes:
        after: The key of the last row that was read; None at the beginning.
        chunk: The number of the next chunk.
        rows: How many rows a chunk has.
        done: How many rows were read.
        clears: True if the dataset has rows of an earlier load, which must be deleted before.
    """

    after: Sequence[str | None] | None = None
    chunk: int = 0
    rows: int = 1_000
    done: int = 0
    clears: bool = False


@dataclass(slots=True)
class LogPosition:
    """The progress in the log.

    Attributes:
        load: The number of the load of the table: 1, and more after the log was lost.
        state: The things that the log remembers.
        at: The coordinate behind the last transaction that was read in full; None if the log isn't kept yet.
        transaction: The coordinate of the transaction that was read in part, if any.
        index: How many of its changes were read.
        committed_us: The greatest time of a commit so far, in microseconds since the epoch. Clocks jump, but event
            times of changes must have their order, so no change is earlier than those before it.
        snapshot: The load of the table, while it is going on.
        seed: The seed of the digests in marks. It stays the same, as marks are on topics.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    load: int = 1
    at: Coordinate | None = None
    transaction: Coordinate | None = None
    index: int = 0
    committed_us: int = 0
    snapshot: Snapshot | None = field(default_factory=Snapshot)
    seed: int = 0

    def is_done(self, transaction: Coordinate, index: int) -> bool:
        """Return whether a change was read."""
        if transaction == self.transaction:
            return index < self.index
        return self.at is not None and transaction < self.at

    def count_done(self, transaction: Coordinate, index: int, count: int) -> int:
        """Return how many of so many consecutive changes were read, which are the first ones of these."""
        if transaction == self.transaction:
            return min(max(self.index - index, 0), count)
        return count if self.is_done(transaction, index) else 0

    def is_ahead(self, mark: str) -> bool:
        """Return whether the row of a mark may still be read."""
        kind, *parts = mark.split("/")
        if kind == "s":
            load, chunk = int(parts[0], 16), int(parts[1], 16)
            snapshot = self.snapshot if load == self.load else None
            return load > self.load or (snapshot is not None and chunk >= snapshot.chunk)
        *transaction, index = (int(part, 16) for part in parts[0].split("-"))
        return not self.is_done(tuple(transaction), index)

    def to_json(self) -> dict[str, Any]:
        """Return the position as it is saved."""
        found: dict[str, Any] = {"log": dict(self.state), "load": self.load, "committed_us": self.committed_us}
        # The seed is saved as text, since a number in JSON may lose digits.
        found["seed"] = f"{self.seed:x}"
        if self.at is not None:
            found["at"] = list(self.at)
        if self.transaction is not None:
            found |= {"transaction": list(self.transaction), "index": self.index}
        if (snapshot := self.snapshot) is not None:
            found["snapshot"] = {
                "after": None if snapshot.after is None else list(snapshot.after),
                "chunk": snapshot.chunk,
                "rows": snapshot.rows,
                "done": snapshot.done,
                "clears": snapshot.clears,
            }
        return found

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> "LogPosition":
        """Return the position that was saved."""
        snapshot = found.get("snapshot")
        return cls(
            state=found["log"],
            load=found["load"],
            at=None if (at := found.get("at")) is None else tuple(at),
            transaction=None if (transaction := found.get("transaction")) is None else tuple(transaction),
            index=found.get("index", 0),
            committed_us=found["committed_us"],
            snapshot=None if snapshot is None else Snapshot(**snapshot),
            seed=int(found["seed"], 16),
        )


def change_mark(transaction: Coordinate, index: int, key: str = "") -> str:
    """Return the mark of a change; `key` tells the rows apart that one change removes."""
    mark = f"{transaction_mark(transaction)}{index:x}"
    return f"{mark}/{key}" if key else mark


def transaction_mark(transaction: Coordinate) -> str:
    """Return the beginning of the marks of a transaction's changes, behind which each has its number in hexadecimal."""
    return "".join(["c/", *(f"{part:x}-" for part in transaction)])


def chunk_mark(load: int, chunk: int, digest: str) -> str:
    """Return the mark of a row of a chunk."""
    return f"s/{load:x}/{chunk:x}/{digest}"
