"""Stored sessions equal those of the sorted aggregate inputs, and a busy group costs no more than a quiet one."""

import random
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.index.storage.keys import RAW, key_prefix, timed_key
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.sessions import SECOND_US, Session, Sessions, sessions_from
from caraway.graph.windows import SessionWindow
from tests.effort import examples

GAP = 2 * SECOND_US
# Times in half seconds, so that two aggregate inputs may lie in one second, which counts once.
HALVES = st.integers(min_value=-40, max_value=40)
BATCH = st.tuples(st.lists(HALVES, max_size=12), st.randoms(use_true_random=False))


def naive(times: list[int]) -> list[Session]:
    found: list[Session] = []
    for time_us in sorted(times):
        second = time_us // SECOND_US * SECOND_US
        if found and second - found[-1].last_us <= GAP:
            found[-1] = Session(found[-1].first_us, second)
        else:
            found.append(Session(second, second))
    return found


class Group:
    """A group to which aggregate inputs are added, and from which they are removed, in batches."""

    def __init__(self, store: IndexStore, prefix: bytes) -> None:
        self.store = store
        self.prefix = prefix
        self.sessions = Sessions(SessionWindow(gap_us=GAP), store)
        self.times: dict[bytes, int] = {}

    def change(self, added: dict[bytes, int], removed: list[bytes]) -> list[tuple[int, int]]:
        batch = self.store.batch()
        entries = {
            name: timed_key(self.prefix + RAW, time_us, name) for name, time_us in {**self.times, **added}.items()
        }
        gone = [self.times.pop(name) for name in removed]
        touched = {entries[name] for name in (*added, *removed)}
        intervals = self.sessions.change(self.prefix, list(added.values()), gone, touched, batch)
        for name in removed:
            batch.delete(entries[name])
        for name in added:
            batch.put(entries[name], b"")
        self.store.write(batch)
        self.times |= added
        return intervals

    def kept(self) -> list[Session]:
        return list(sessions_from(self.store.iterator(), self.prefix, -(10**15), 10**15))


def test_sessions_are_those_of_all_aggregate_inputs(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "index", cache_bytes=1 << 20) as store:
        groups = count()

        @settings(max_examples=examples(40))
        @given(
            batches=st.lists(st.tuples(st.lists(HALVES, max_size=12), st.randoms(use_true_random=False)), max_size=8)
        )
        def hold(batches: list[tuple[list[int], random.Random]]) -> None:
            group = Group(store, key_prefix(b"8 bytes!", next(groups).to_bytes(4)))
            for number, (halves, rng) in enumerate(batches):
                check(group, number, halves, rng)

        hold()


def check(group: Group, number: int, halves: list[int], rng: random.Random) -> None:
    """Add and remove aggregate inputs; compare the sessions with those of all aggregate inputs."""
    before = group.kept()
    added = {f"{number} {n}".encode(): half * SECOND_US // 2 for n, half in enumerate(halves)}
    removed = rng.sample(sorted(group.times), rng.randrange(len(group.times) + 1))
    intervals = group.change(added, removed)
    after = group.kept()
    assert after == naive(list(group.times.values()))
    # The returned intervals include every session that was removed, is new, or got another aggregate input.
    assert {(session.first_us, session.end_us) for session in set(before) ^ set(after)} <= set(intervals)
    for time_us in added.values():
        assert any(first <= time_us // SECOND_US * SECOND_US < end for first, end in intervals)
