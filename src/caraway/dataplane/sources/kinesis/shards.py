"""The shards of a stream: which of them may be read, and how far each is read.

A shard ends when it is divided or merged with another one; its *children* go on. Records of one key are then in the
child, so a child is read after its parents are read to their ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from caraway.graph.connectors import StreamStart

# The place of a shard of which all records are read.
END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard.

    Attributes:
        name: The name.
        parents: The names of the shards that it replaces.
        first_hash: The least hash of the keys whose records are in it.
        last_hash: The greatest one.
    """

    name: str
    parents: tuple[str, ...] = ()
    first_hash: int = 0
    last_hash: int = (1 << 128) - 1


def shard_of(listed: Mapping[str, Any]) -> Shard:
    """Return a shard of an answer of Kinesis to `ListShards`."""
    parents = (listed.get("ParentShardId"), listed.get("AdjacentParentShardId"))
    hashes = listed["HashKeyRange"]
    return Shard(
        name=listed["ShardId"],
        parents=tuple(parent for parent in parents if parent),
        first_hash=int(hashes["StartingHashKey"]),
        last_hash=int(hashes["EndingHashKey"]),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """How far a shard is read: up to and with `sequence_number`, of which only the parts before `part` are read.

    `part` is None if the record is read as a whole.
    """

    sequence_number: int
    part: int | None = None

    def includes(self, sequence_number: int, part: int) -> bool:
        """Return whether a record is read."""
        if sequence_number != self.sequence_number:
            return sequence_number < self.sequence_number
        return self.part is None or part < self.part


@dataclass(slots=True)
class StreamPosition:
    """How far a stream is read.

    Attributes:
        start: The beginning of shards that have no place: the oldest record, or the first one that arrived at or after
            an instant (microseconds since the epoch).
        places: The places of shards of which something was read; None for those that are read to their ends.
    """

    start: StreamStart | int
    places: dict[str, Place | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the position as it is saved."""
        return {"start": self.start, "shards": {shard: _text(place) for shard, place in self.places.items()}}

    @classmethod
    def from_json(cls, position: Mapping[str, Any]) -> "StreamPosition":
        """Return a saved position."""
        start = position["start"]
        places = {shard: _place(text) for shard, text in position["shards"].items()}
        return cls(start if isinstance(start, int) else StreamStart(start), places)

    def has_read(self, shard: str, sequence_number: int, part: int) -> bool:
        """Return whether a record is read."""
        if shard not in self.places:
            return False
        place = self.places[shard]
        return place is None or place.includes(sequence_number, part)

    def is_ended(self, shard: str) -> bool:
        """Return whether a shard is read to its end."""
        return shard in self.places and self.places[shard] is None

    def keep(self, listed: Iterable[str]) -> list[str]:
        """Forget shards that the stream doesn't have any more, and return those that weren't read to their ends."""
        gone = self.places.keys() - set(listed)
        lost = sorted(shard for shard in gone if self.places[shard] is not None)
        for shard in gone:
            del self.places[shard]
        return lost


def readable(shards: Mapping[str, Shard], position: StreamPosition) -> list[Shard]:
    """Return the shards that may be read: those with records left whose parents are read to their ends or gone."""
    return [
        shard
        for shard in shards.values()
        if not position.is_ended(shard.name)
        and all(parent not in shards or position.is_ended(parent) for parent in shard.parents)
    ]


def _text(place: Place | None) -> str:
    if place is None:
        return END
    number = str(place.sequence_number)
    return number if place.part is None else f"{number}/{place.part}"


def _place(text: str) -> Place | None:
    if text == END:
        return None
    number, _, part = text.partition("/")
    return Place(int(number), int(part) if part else None)
