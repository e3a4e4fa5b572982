"""An index that is written until its process is killed; it says how far it is, and how far it is on the disk.

Usage: python -m tests.faults.dying_index FOLDER KIND SEED. After each batch a line tells the offset that the index has
reached, and whether all before it was synced.
"""

import random
import sys
from pathlib import Path

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.graph.plan.model import IndexKind, IndexPlan
from tests.unit.dataplane.index.naive import ALL_AGGREGATES, SECOND, SMALL, Sent, index_plan

RECORDS = 1_500
KEYS = tuple("abcdefgh")
PLANS = {
    kind: index_plan(kind, revised=True, aggregates=ALL_AGGREGATES if kind is IndexKind.AGGREGATE else ())
    for kind in (IndexKind.VERSIONS, IndexKind.AGGREGATE)
}


def records(seed: int) -> list[Sent]:
    """Return the records of a topic: new ones, and later revisions of earlier ones, which retract some of these."""
    chance = random.Random(seed)
    found: list[Sent] = []
    for number in range(RECORDS):
        row = (chance.randint(-9, 9), chance.uniform(-4, 4), f"{chance.randint(-99, 99)}.25")
        time_us = chance.randint(0, 60 * SECOND)
        if found and chance.random() < 0.2:
            earlier = chance.choice(found)
            op = chance.choice((PUT, RETRACT))
            rev = number.to_bytes(4)
            found.append(Sent(earlier.key, earlier.record_id, rev, op, earlier.time, row if op == PUT else None))
        else:
            found.append(Sent(chance.choice(KEYS), position_id(number, 1), b"", PUT, time_us, row))
    return found


def opened(folder: Path) -> IndexStore:
    """Return the database, opened as a server opens it."""
    return IndexStore(folder, geometry=SMALL, cache_bytes=1 << 20)


def follow(store: IndexStore, plan: IndexPlan, topic: list[Sent], end: int) -> None:
    """Apply the records from the index's own position up to `end`."""
    start = store.offsets(plan.asset).get(0, 0)
    messages = [sent.message(start + position) for position, sent in enumerate(topic[start:end])]
    IndexWriter(store).apply(plan, messages)


def main(folder: Path, plan: IndexPlan, seed: int) -> None:
    """Write the index in small batches; at times all is synced, or tables are written or merged."""
    topic, chance = records(seed), random.Random(seed + 1)
    with opened(folder) as store:
        end = 0
        while end < RECORDS:
            end = min(RECORDS, end + chance.randint(1, 60))
            follow(store, plan, topic, end)
            step = chance.random()
            if step < 0.1:
                store.sync()
            elif step < 0.2:
                store.db.flush()
            elif step < 0.23:
                store.db.compact_range(None, None)
            sys.stdout.write(f"{end} {int(step < 0.23)}\n")
            sys.stdout.flush()
        # The kill comes while the database is open.
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), PLANS[IndexKind(sys.argv[2])], int(sys.argv[3]))
