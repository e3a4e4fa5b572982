"""Removing all entries of erased keys from an index.

Only hashes of the keys are known, so all keys are looked at, slice by slice, between two batches of the tail. That a
key is erased is noted in the same write as the offset behind the record that said so; a restart goes on with what isn't
removed yet.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
from rocksdict import WriteBatch

from caraway.index.records.locations import Location
from caraway.index.storage.keys import ASSET_BYTES, ERASED, LOCATIONS, after
from caraway.index.storage.store import IndexStore, check_end
from caraway.topics import RETRACT, Erasure
from caraway.topics.erasure import Hides

LENGTH_BYTES = 2
# How long reads may keep files that aren't in use any more, and how often to look.
GONE_SECONDS = 60.0
GONE_PAUSE_SECONDS = 0.02
PENDING, REMOVED = b"\x00", b"\x01"

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Erasure).decode
_DECODE_LOCATION = msgspec.msgpack.Decoder(Location).decode


@dataclass(frozen=True, slots=True)
class Removal:
    """What a slice did: keys (and locations) whose entries went, and where the next one begins; None at the end."""

    removed: int
    next: bytes | None


def note_erasure(asset: bytes, erasure: Erasure, batch: WriteBatch) -> None:
    """Add to `batch` that a key is erased and that its entries are to be removed."""
    batch.put(asset + ERASED + PENDING + _ENCODE(erasure), b"")


def known_erasures(store: IndexStore, asset: bytes, *, pending: bool = False) -> list[Erasure]:
    """Return the erased keys that an index knows of; only those whose entries aren't removed yet if `pending`."""
    entries = asset + ERASED
    first, end = (entries + PENDING, after(entries + PENDING)) if pending else (entries, after(entries))
    skipped = len(entries) + len(PENDING)
    return list({_DECODE(key[skipped:]): None for key, _ in store.scan(first, end)})


def mark_removed(store: IndexStore, asset: bytes, erasures: Iterable[Erasure]) -> None:
    """Note that the entries of erased keys are removed."""
    batch = store.batch()
    for erasure in erasures:
        batch.delete(asset + ERASED + PENDING + _ENCODE(erasure))
        batch.put(asset + ERASED + REMOVED + _ENCODE(erasure), b"")
    store.write(batch)


def remove(store: IndexStore, asset: bytes, hides: Hides, start: bytes, limit: int) -> Removal:
    """Remove all entries of hidden keys; look at some `limit` keys. To be called by the thread that writes the asset.

    What is left of an identity that may be revised says only that it is retracted, so that an old revision which comes
    again isn't taken for a new one.

    Args:
        store: The database.
        asset: The index.
        hides: Tells whether a key is erased.
        start: Where the slice before ended, b"" for the first one.
        limit: How many keys to look at before the rest is left to the next slice.
    """
    batch = store.batch()
    looked = removed = 0
    stopped: bytes | None = None
    for prefix in _prefixes(store, asset, start):
        if looked >= limit:
            stopped = prefix
            break
        looked += 1
        if hides(prefix[ASSET_BYTES + LENGTH_BYTES :]):
            batch.delete_range(prefix, after(prefix))
            removed += 1
    if stopped is None:
        locations = asset + LOCATIONS
        for key, value in store.scan(max(start, locations), after(locations)):
            if looked >= limit:
                stopped = key
                break
            looked += 1
            location = _DECODE_LOCATION(value)
            if location.key and hides(location.key):
                batch.put(key, _ENCODE(Location(location.rev, RETRACT, 0, b"")))
                removed += 1
    if removed:
        store.write(batch)
    return Removal(removed, stopped)


def compact(store: IndexStore, asset: bytes, stopping: threading.Event, seconds: float = GONE_SECONDS) -> bool:
    """Write the files of an asset anew, without what was deleted, and wait until the old ones are off the disk.

    RocksDB takes a file away a moment after it has written its rows anew; one that somebody still reads, when that has
    ended.

    Args:
        store: The database.
        asset: The index.
        stopping: Set, it ends the wait.
        seconds: How long to wait for reads to end.

    Returns:
        Whether they are gone.
    """
    store.db.flush()
    old = store.tables()
    store.db.compact_range(asset, after(asset))
    deadline = time.monotonic() + seconds
    while (old := old & store.unused_tables()) and time.monotonic() < deadline and not stopping.is_set():
        stopping.wait(GONE_PAUSE_SECONDS)
    return not old


def _prefixes(store: IndexStore, asset: bytes, start: bytes) -> Iterator[bytes]:
    """Yield what the entries of each key begin with, from `start` on."""
    iterator, end = store.iterator(), asset + ERASED
    iterator.seek(start or asset)
    while iterator.valid() and (key := iterator.key()) < end:
        length = int.from_bytes(key[ASSET_BYTES : ASSET_BYTES + LENGTH_BYTES])
        prefix = key[: ASSET_BYTES + LENGTH_BYTES + length]
        yield prefix
        iterator.seek(after(prefix))
    check_end(iterator)
