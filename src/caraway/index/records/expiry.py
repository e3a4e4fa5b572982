"""Removing versions that no read can return any more.

A version is superseded when a later one of its key begins. A version that was superseded at or before a horizon isn't
returned by any read as of the horizon or later, whatever late records still come, because the version that holds at the
horizon stays, even if it is a deletion, and hides all older ones.
"""

from dataclasses import dataclass

from caraway.index.storage.database import check_end
from caraway.index.storage.keys import ASSET_BYTES, ERASED, VERSION, version_seek
from caraway.index.storage.store import IndexStore

LENGTH_BYTES = 2


@dataclass(frozen=True, slots=True)
class Swept:
    """The outcome of a slice: how many versions were removed, and the begin of the next slice; None at the end."""

    removed: int
    next: bytes | None


def sweep(store: IndexStore, asset: bytes, horizon_us: int, start: bytes, limit: int) -> Swept:
    """Remove versions of an index that were superseded at or before a time; examine some `limit` entries.

    The locations of identities stay, for topics whose records may be revised: a revision that is delivered again must
    not be taken for a new one. Only the thread that writes the asset may call this.

    Args:
        store: The database.
        asset: An index of versions.
        horizon_us: No read is as of an earlier time.
        start: The end of the previous slice, b"" for the first one.
        limit: How many entries to examine before the rest is left to the next slice.
    """
    iterator, batch = store.iterator(), store.batch()
    # The entries of keys end where the entries of the whole asset begin.
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
            # This version holds at the horizon, so it stays.
            iterator.next()
        while iterator.valid() and (superseded := iterator.key()).startswith(versions):
            # At least one version is removed even if examining the key has used up the limit; otherwise the next slice
            # would stop at this key again, without progress.
            if looked > limit:
                # The next slice begins with the same key, whose removed versions are gone by then.
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
