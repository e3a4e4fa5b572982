"""Removing versions that nobody can read any more.

A version is superseded when a later one of its key begins. What was superseded at or before a horizon isn't seen by any
read as of the horizon or later, whatever late records still come: the version that holds at the horizon stays, also if
it is a deletion, and hides all that are older.
"""

from dataclasses import dataclass

from caraway.index.storage.keys import ASSET_BYTES, ERASED, VERSION, version_seek
from caraway.index.storage.store import IndexStore, check_end

LENGTH_BYTES = 2


@dataclass(frozen=True, slots=True)
class Swept:
    """What a slice of a sweep did: versions removed, and where the next slice begins; None if all was looked at."""

    removed: int
    next: bytes | None


def sweep(store: IndexStore, asset: bytes, horizon_us: int, start: bytes, limit: int) -> Swept:
    """Remove versions of an index that were superseded at or before a time; look at some `limit` entries.

    The locations of identities of topics whose records may be revised stay: a revision that comes again must not be
    taken for a new one. To be called by the thread that writes the asset.

    Args:
        store: The database.
        asset: An index of versions.
        horizon_us: No read is as of an earlier time.
        start: Where the slice before ended, b"" for the first one.
        limit: How many entries to look at before the rest is left to the next slice.
    """
    iterator, batch = store.iterator(), store.batch()
    # Behind the entries of the keys lie those of the whole asset.
    end = asset + ERASED
    iterator.seek(start or asset)
    looked = removed = 0
    stopped: bytes | None = None
    while iterator.valid() and (key := iterator.key()) < end:
        if looked >= limit:
            stopped = key
            break
        prefix = key[: ASSET_BYTES + LENGTH_BYTES + int.from_bytes(key[ASSET_BYTES : ASSET_BYTES + LENGTH_BYTES])]
        versions = prefix + VERSION
        iterator.seek(version_seek(prefix, horizon_us))
        looked += 1
        if iterator.valid() and iterator.key().startswith(versions):
            # This one holds at the horizon.
            iterator.next()
        while iterator.valid() and (superseded := iterator.key()).startswith(versions):
            # One is removed even if the look at the key was all that was left to do: else the next slice ends here too.
            if looked > limit:
                # What was removed by then isn't there for the next slice.
                stopped = prefix
                break
            batch.delete(superseded)
            removed, looked = removed + 1, looked + 1
            iterator.next()
        if stopped is not None:
            break
    check_end(iterator)
    if removed:
        store.write(batch)
    return Swept(removed, stopped)
