"""The records that were seen: each row is new once, and the file stays small."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.dataplane.topics.blocks import MAX_RECORDS
from caraway.dataplane.topics.identity import position_id, position_ids
from caraway.offline.monitoring.quality.seen import SeenRecords

OFFSETS = st.integers(0, 3) | st.sampled_from([255, 256, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
POSITIONS = st.builds(
    position_id, OFFSETS, st.sampled_from([0, 1, 65_535]), st.sampled_from([0, 1, MAX_RECORDS - 1, 128, 65_535])
)
# A union and `explode` make identities of other lengths.
IDS = POSITIONS | st.builds(lambda position: b"\x01" + position, POSITIONS) | st.binary(max_size=2)
PUT = st.booleans()


@given(
    records=st.lists(st.tuples(st.integers(0, 1), IDS, PUT), max_size=20),
    cuts=st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=4),
)
@example(records=[(0, position_id(1, 0), True), (0, position_id(1, 0, 1), True)], cuts=[(1, True)])
def test_records_that_are_never_revised_are_new_once(
    tmp_path_factory: Any, records: list[tuple[int, bytes, bool]], cuts: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("seen") / "seen.db"
    seen = SeenRecords(path, revised=False)
    kept: set[tuple[int, bytes]] = set()
    known: set[tuple[int, bytes]] = set()
    at = 0
    for size, commits in [*cuts, (len(records), True)]:
        some = records[at : at + size]
        at += size
        expected = []
        for partition, record_id, is_put in some:
            expected.append(is_put and (partition, record_id) not in known)
            if is_put:
                known.add((partition, record_id))
        assert seen.add([(p, record_id, b"", b"" if is_put else None) for p, record_id, is_put in some]) == expected
        if commits:
            seen.commit({0: at})
            kept = set(known)
        else:
            # The process dies.
            seen.close()
            seen, known = SeenRecords(path, revised=False), set(kept)
    seen.close()


@pytest.mark.parametrize(("count", "most"), [(1, 4.0), (MAX_RECORDS, 2.0)])
def test_a_record_that_is_never_revised_takes_few_bytes(tmp_path: Path, count: int, most: float) -> None:
    seen, chance = SeenRecords(tmp_path / "seen.db", revised=False), random.Random(3)
    ids = [one for offset in range(60_000 // count) for one in position_ids(offset, 0, count)]
    # A filter leaves out a third of the rows, and the others are spread over the partitions by their keys.
    entries = [(chance.randrange(4), one, b"", b"") for one in ids if chance.random() < 0.67]
    for first in range(0, len(entries), 5_000):
        assert all(seen.add(entries[first : first + 5_000]))
        seen.commit({0: first})
    assert not any(seen.add(entries[:1_000]))
    seen.close()
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size / len(entries) < most
