"""The location of each identity, for topics whose records may be revised.

A record replaces the earlier record of its identity if its revision is greater, or if it is a put over a retraction of
the same revision. The two may have different event times or keys. A changelog emits two records for one version, a put
(identity `x 00`) and the delete that ends it (`x 01`); they share one entry, to which the delete adds the end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import not_

import msgspec
from rocksdict import WriteBatch

from caraway.dataplane.index.records.delivery import Delivered
from caraway.dataplane.index.storage.intervals import ever_counts, own_windows
from caraway.dataplane.index.storage.keys import (
    ENDED,
    NEVER,
    RAW,
    SIGN,
    VERSION,
    key_prefix,
    location_key,
    timed_key,
    unpack_u64,
    version_key,
)
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT
from caraway.dataplane.topics.identity import ID_BYTES
from caraway.graph.plan.model import IndexKind, IndexPlan

PUT_SUFFIX, END_SUFFIX = b"\x00", b"\x01"


class Location(msgspec.Struct, array_like=True, frozen=True, gc=False, omit_defaults=True):
    """The newest revision of an identity: its revision, operation, time and key.

    `rank` precedes the identity in the order of aggregate inputs of equal times. The location of an `erased` key has no
    key, and its identity no entry; its times still advance the max event time.
    """

    rev: bytes
    op: int
    time: int
    key: bytes
    rank: bytes = b""
    erased: bool = False


# Locations by identity, None for an identity that the index doesn't know.
Known = dict[bytes, Location | None]

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Location).decode


class LocatedEntry(msgspec.Struct, frozen=True, gc=False):
    """The entry of an identity: the prefix of its key's entries, the kind of entry, and the entry's own key.

    `life` is the time of an aggregate input that is or was in a window, and the time of its end, None if it has none.
    """

    prefix: bytes
    kind: bytes
    entry: bytes
    life: tuple[int, int | None] | None = None


# The entry of an identity, or None; and the time to which the identity advances the max event time, or None. This time
# is the event time of an aggregate input or the time of its end. For an erased key there is no entry, but there may be
# a time.
Located = tuple[LocatedEntry | None, int | None]
NOWHERE: Located = (None, None)


class Movement(msgspec.Struct, frozen=True, gc=False):
    """The change that a batch makes to one identity: its entry and value before and after, None if it has no entry.

    `reached_us` and `reaches_us` are the times to which it advanced and advances the max event time, None if to none.
    """

    record_id: bytes
    old: LocatedEntry | None
    old_value: bytes | None
    new: LocatedEntry | None
    new_value: bytes | None
    reached_us: int | None = None
    reaches_us: int | None = None


class Locations:
    """The locations of the identities of one index."""

    def __init__(self, plan: IndexPlan, store: IndexStore) -> None:
        self._asset = plan.asset
        self._store = store
        self._entry_of = self._version if plan.kind is IndexKind.VERSIONS else self._aggregate_input
        self._paired = plan.kind is IndexKind.AGGREGATE
        self._windows = own_windows(plan)
        self._along = plan.along

    def known(self, delivered: Sequence[Delivered]) -> Known:
        """Return the locations in the database of the identities that records concern, None where there is none."""
        ids = dict.fromkeys(i for d in delivered for i in self._concerned(d.record_id))
        return self._load(list(ids))

    def divide(self, delivered: Sequence[Delivered], known: Known) -> tuple[list[Delivered], list[Delivered]]:
        """Divide records into those that only add an entry, and all others; repeated ones are left out.

        A record only adds an entry if it is the first one of its identity. Keys are divided as a whole, since a batch
        changes the tiles of a key once. A job that starts again sends many records again; among others they would
        make all of their keys take the slower way.
        """
        counts = Counter([item.record_id for item in delivered])
        delivered = [item for item in delivered if counts[item.record_id] > 1 or not self._is_repeat(item, known)]
        first = [
            item.record.op == PUT
            and not item.erased
            and known[item.record_id] is None
            and counts[item.record_id] == 1
            and not self._is_paired(item.record_id)
            for item in delivered
        ]
        if all(first):
            return list(delivered), []
        others = [item for item, is_first in zip(delivered, first, strict=True) if not is_first]
        before = (known[record_id] for item in others for record_id in self._concerned(item.record_id))
        keys = {item.key for item in others} | {location.key for location in before if location is not None}
        adding = [is_first and item.key not in keys for item, is_first in zip(delivered, first, strict=True)]
        return list(compress(delivered, adding)), list(compress(delivered, map(not_, adding)))

    def _is_repeat(self, item: Delivered, known: Known) -> bool:
        """Return whether a record says nothing that isn't known of its identity."""
        location, record = known[item.record_id], item.record
        if location is None or item.erased or self._is_paired(item.record_id):
            return False
        return not _supersedes(Location(record.rev or b"", record.op, record.time, item.key, item.rank), location)

    def locate(self, added: Sequence[Delivered], batch: WriteBatch) -> None:
        """Add the locations of records that only add an entry to `batch`."""
        for item in added:
            record = item.record
            location = Location(record.rev or b"", PUT, record.time, item.key, item.rank)
            batch.put(location_key(self._asset, item.record_id), _ENCODE(location))

    def settle(self, delivered: Sequence[Delivered], before: Known, batch: WriteBatch) -> list[Movement]:
        """Add the location of each identity's newest revision to `batch`, and return the movements of their entries.

        `before` has the known locations (`known`).
        """
        after = dict(before)
        values: dict[bytes, bytes] = {}
        changed: dict[bytes, None] = {}
        for item in delivered:
            record_id, record = item.record_id, item.record
            key = b"" if item.erased else item.key
            location = Location(record.rev or b"", record.op, record.time, key, item.rank, item.erased)
            if not _supersedes(location, after[record_id]):
                continue
            after[record_id] = location
            values[record_id] = item.value
            changed[record_id] = None
        for record_id in changed:
            batch.put(location_key(self._asset, record_id), _ENCODE(after[record_id]))
        bases = dict.fromkeys(i for record_id in changed for i in self._bases(record_id))
        moves = []
        for base in bases:
            was, now = self._entry_of(base, before), self._entry_of(base, after)
            if was != NOWHERE or now != NOWHERE:
                moves.append((base, was, now))
        old_entries = [old.entry for _, (old, _), _ in moves if old is not None]
        old_values = dict(zip(old_entries, self._store.get_many(old_entries), strict=True)) if old_entries else {}
        movements = []
        for base, (old, reached_us), (new, reaches_us) in moves:
            old_value = None if old is None else old_values[old.entry]
            new_value = None if new is None else values.get(base, old_value)
            if old != new or old_value != new_value or reached_us != reaches_us:
                movements.append(Movement(base, old, old_value, new, new_value, reached_us, reaches_us))
        return movements

    def _concerned(self, record_id: bytes) -> Iterable[bytes]:
        """Return the identities whose locations determine the same entry as an identity's."""
        if self._is_paired(record_id):
            return record_id[:-1] + PUT_SUFFIX, record_id[:-1] + END_SUFFIX
        return (record_id,)

    def _bases(self, record_id: bytes) -> Iterable[bytes]:
        """Return the identities whose entries depend on an identity."""
        if self._is_paired(record_id) and record_id.endswith(END_SUFFIX):
            return record_id[:-1] + PUT_SUFFIX, record_id
        return (record_id,)

    def _is_paired(self, record_id: bytes) -> bool:
        return self._paired and len(record_id) > ID_BYTES and record_id[-1] <= END_SUFFIX[0]

    def _load(self, ids: list[bytes]) -> Known:
        found = self._store.get_many([location_key(self._asset, record_id) for record_id in ids]) if ids else []
        return {record_id: None if data is None else _DECODE(data) for record_id, data in zip(ids, found, strict=True)}

    def _version(self, record_id: bytes, locations: Known) -> Located:
        location = locations[record_id]
        if location is None or location.op == RETRACT or location.erased:
            return NOWHERE
        prefix = key_prefix(self._asset, location.key)
        return LocatedEntry(prefix, VERSION, version_key(prefix, location.time, record_id)), None

    def _aggregate_input(self, record_id: bytes, locations: Known) -> Located:
        location = locations[record_id]
        if location is None or location.op != PUT:
            return NOWHERE
        time_us, end_us = location.time, None
        reaches_us: int | None = time_us
        end = locations.get(record_id[:-1] + END_SUFFIX) if self._is_paired(record_id) else None
        kind = RAW
        if end is not None and end.op == DELETE:
            end_us = end.time
            # A version that ends at its own begin, or before it, never held, so it is never counted.
            begin_us = unpack_u64(location.rank, 0)[0] - SIGN if self._along else time_us
            held = end_us > begin_us
            reaches_us = None if not held else time_us if self._along else end_us
            kind = ENDED if held and ever_counts(self._windows, time_us, end_us) else NEVER
        if location.erased:
            return None, reaches_us
        prefix = key_prefix(self._asset, location.key)
        entry = timed_key(prefix + kind, time_us if end_us is None else end_us, location.rank + record_id)
        return LocatedEntry(prefix, kind, entry, None if kind == NEVER else (time_us, end_us)), reaches_us


def is_end(record_id: bytes) -> bool:
    """Return whether an identity can be that of an aggregate input's end."""
    return len(record_id) > ID_BYTES and record_id.endswith(END_SUFFIX)


def _supersedes(location: Location, known: Location | None) -> bool:
    """Return whether a record replaces the known one; at equal revisions only a put over a retraction does."""
    if known is None or location.rev > known.rev:
        return True
    return location.rev == known.rev and known.op == RETRACT and location.op != RETRACT
