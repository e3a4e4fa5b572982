"""Removing versions that no read can return any more.

A version is superseded when a later version of its key begins. No read as of a horizon or later returns a version that
was superseded at or before the horizon, because such a read finds the version that holds at the horizon first. That
version stays, even if it is a deletion, so late records don't change this.
"""

from caraway.dataplane.index.records.delivery import Removal
from caraway.dataplane.index.storage.database import check_end
from caraway.dataplane.index.storage.keys import ERASED, VERSION, prefix_of, version_seek
from caraway.dataplane.index.storage.store import IndexStore


def sweep(store: IndexStore, asset: bytes, horizon_us: int, start: bytes, limit: int) -> Removal:
    """Remove a slice of the versions of an index that were superseded at or before a horizon.

    The slice begins at `start`, b"" for the first one, and ends after some `limit` entries. No read may be as of a time
    before the horizon. The locations of identities stay: without them a revision that is delivered again would be taken
    for a new one. Only the thread that writes the asset may call this.
    """
    iterator, batch = store.iterator(), store.batch()
    # The sweep ends here. RocksDB sorts the entries of the whole asset, such as locations, behind the entries of its
    # keys, and the erased keys are the first of them.
    end = asset + ERASED
    iterator.seek(start or asset)
    looked = removed = 0
    stopped: bytes | None = None
    while iterator.valid() and (key := iterator.key()) < end:
        if looked >= limit:
            stopped = key
            break
        prefix = prefix_of(key)
        versions = prefix + VERSION
        iterator.seek(version_seek(prefix, horizon_us))
        looked += 1
        if iterator.valid() and iterator.key().startswith(versions):
            # The version found here holds at the horizon, so it stays.
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
    return Removal(removed, stopped)
