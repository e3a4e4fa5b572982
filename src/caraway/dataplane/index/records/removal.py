"""Removing all entries of erased keys from an index.

Only hashes of the erased keys are known, so all keys are examined, slice by slice, between two batches of records. An
erasure is stored in the same write as the offset behind its record, so that it isn't lost by a restart, after which the
removal continues with the erasures whose entries aren't removed yet.
"""

import threading
import time
from collections.abc import Iterable, Iterator

import msgspec
from rocksdict import WriteBatch

from caraway.dataplane.index.records.delivery import Removal
from caraway.dataplane.index.records.locations import Location
from caraway.dataplane.index.storage.database import TRANSLATED, check_end
from caraway.dataplane.index.storage.keys import ERASED, LOCATIONS, after, key_of, prefix_of
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.erased_keys import Hides
from caraway.graph.erase_keys import Erasure

# After its compaction, `compact` waits until no read uses the old files any more and RocksDB has removed them. The wait
# takes at most GONE_SECONDS, with this pause in seconds between two looks at the disk.
GONE_SECONDS = 60.0
GONE_PAUSE_SECONDS = 0.02
PENDING, REMOVED = b"\x00", b"\x01"

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Erasure).decode
_DECODE_LOCATION = msgspec.msgpack.Decoder(Location).decode


def note_erasure(asset: bytes, erasure: Erasure, batch: WriteBatch) -> None:
    """Add an erasure to `batch`, with the mark that the key's entries are still to be removed."""
    batch.put(pending_key(asset, erasure), b"")


def pending_key(asset: bytes, erasure: Erasure) -> bytes:
    """Return the key of the entry of an erasure whose key's entries are still to be removed."""
    return asset + ERASED + PENDING + _ENCODE(erasure)


def known_erasures(store: IndexStore, asset: bytes, *, pending: bool = False) -> list[Erasure]:
    """Return the erasures that an index knows of; if `pending`, only those whose entries aren't removed yet."""
    entries = asset + ERASED
    first, end = (entries + PENDING, after(entries + PENDING)) if pending else (entries, after(entries))
    skipped = len(entries) + len(PENDING)
    return list({_DECODE(key[skipped:]): None for key, _ in store.scan(first, end)})


def mark_removed(store: IndexStore, asset: bytes, erasures: Iterable[Erasure]) -> None:
    """Write that the entries of erased keys are removed."""
    batch = store.batch()
    for erasure in erasures:
        batch.delete(pending_key(asset, erasure))
        batch.put(asset + ERASED + REMOVED + _ENCODE(erasure), b"")
    store.write(batch)


def remove(store: IndexStore, asset: bytes, hides: Hides, start: bytes, limit: int) -> Removal:
    """Remove all entries of the keys in a slice that are erased, which `hides` decides.

    The slice begins at `start`, b"" for the first one, and ends after some `limit` keys. The location of an identity
    that may be revised loses its key and stays, so that an old revision which is delivered again isn't taken for a new
    one, and the times of erased records still close discrete windows. Only the thread that writes the asset may call
    this.
    """
    batch = store.batch()
    looked = removed = 0
    stopped: bytes | None = None
    for prefix in _prefixes(store, asset, start):
        if looked >= limit:
            stopped = prefix
            break
        looked += 1
        if hides(key_of(prefix)):
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
                batch.put(key, _ENCODE(msgspec.structs.replace(location, key=b"", erased=True)))
                removed += 1
    if removed:
        store.write(batch)
    return Removal(removed, stopped)


def compact(store: IndexStore, asset: bytes, stopping: threading.Event, seconds: float = GONE_SECONDS) -> bool:
    """Rewrite the files of an asset without deleted entries, and wait until the old files are off the disk.

    RocksDB removes an old file a moment after it has written the new one, or when the last read that uses it ends. The
    wait ends after `seconds`, or once `stopping` is set. True is returned if the old files are gone.
    """
    with TRANSLATED:
        store.db.flush()
    old = store.tables()
    store.rewrite(asset)
    deadline = time.monotonic() + seconds
    while (old := old & store.unused_tables()) and time.monotonic() < deadline and not stopping.is_set():
        stopping.wait(GONE_PAUSE_SECONDS)
    return not old


def _prefixes(store: IndexStore, asset: bytes, start: bytes) -> Iterator[bytes]:
    """Yield the prefix of each key's entries, from `start` on."""
    iterator, end = store.iterator(), asset + ERASED
    iterator.seek(start or asset)
    while iterator.valid() and (key := iterator.key()) < end:
        prefix = prefix_of(key)
        yield prefix
        iterator.seek(after(prefix))
    check_end(iterator)
