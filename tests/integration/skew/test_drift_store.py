"""The record of profiles: each pass is in them once, hours are added up, and old ones go."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.state.database import connect
from caraway.state.drift import DriftStore, Profiled
from caraway.state.profiles import Found, HourKey, ProfileStore, Subject

HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(postgres: str) -> Iterator[DriftStore]:
    engine = connect(postgres)
    yield DriftStore(engine)
    engine.dispose()


def column(*values: float) -> ColumnProfile:
    made = ColumnProfile(Kind.NUMBER)
    made.add(pa.array(values, pa.float64()))
    return made


def key(hours: int = 0, *, feature: str = "A.x", branch: str = "main") -> HourKey:
    return HourKey(scope=branch, column=feature, kind=Kind.NUMBER, hour=HOUR + timedelta(hours=hours))


def profiled(since: int | None, until: int, columns: dict[HourKey, ColumnProfile]) -> Profiled:
    return Profiled(topic_id="t", since={} if since is None else {0: since}, until={0: until}, columns=columns)


def sums(store: DriftStore, hours: int, *, branch: str = "main") -> dict[str, tuple[int, float]]:
    found = store.profiles.window(branch, HOUR, HOUR + timedelta(hours=hours), ["A.x", "A.y"])
    return {name: (profile.rows, profile.moments.sum()) for (name, _), profile in found.items()}


def test_a_pass_is_in_the_profiles_once(store: DriftStore) -> None:
    first = profiled(None, 5, {key(): column(1, 2), key(1): column(3), key(feature="A.y"): column(9)})
    assert store.add(first)
    assert store.positions("t") == {0: 5}
    # Its answer may have been lost, or another process may have made the same pass.
    assert store.add(first)
    assert not store.add(profiled(None, 7, {key(): column(100)}))
    assert store.add(profiled(5, 8, {key(): column(0.5)}))
    assert not store.add(profiled(8, 9, {key(): column(100)}), lambda _: False)
    assert sums(store, 1) == {"A.x": (3, 3.5), "A.y": (1, 9.0)}
    assert sums(store, 2) == {"A.x": (4, 6.5), "A.y": (1, 9.0)}
    assert sums(store, 2, branch="other") == {}


def test_a_reference_takes_the_place_of_the_one_before(store: DriftStore) -> None:
    store.profiles.set_references("main", {"A.x": column(1), "A.y": column(2)}, "ann")
    store.profiles.set_references("main", {"A.x": column(5)}, "bob")
    found = store.profiles.references("main", ["A.x", "A.y", "A.z"])
    assert {name: (one.profile.mean, one.set_by) for name, one in found.items()} == {
        "A.x": (5.0, "bob"),
        "A.y": (2.0, "ann"),
    }
    assert store.profiles.references("other", ["A.x"]) == {}


def test_what_was_found_last_is_kept_and_old_profiles_and_branches_go(store: DriftStore) -> None:
    found = [Found(scope="main", column="A.x", distance="psi", value=0.3, drifted=True)]
    store.profiles.record("main", [Found(scope="main", column="A.y", distance="ks", value=0.1, drifted=False)])
    store.profiles.record("main", found)
    assert store.profiles.found() == found
    store.add(profiled(None, 1, {key(): column(1), key(1): column(2), key(1, branch="gone"): column(3)}))
    store.profiles.set_references("gone", {"A.x": column(1)}, "ann")
    store.prune(HOUR + timedelta(hours=1), ["main"])
    assert sums(store, 5) == {"A.x": (1, 2.0)}
    assert sums(store, 5, branch="gone") == {}
    assert store.profiles.references("gone", ["A.x"]) == {}
    store.prune(HOUR, ["other"])
    assert store.profiles.found() == []


def test_features_and_datasets_of_one_name_are_apart(store: DriftStore, postgres: str) -> None:
    engine = connect(postgres)
    datasets = ProfileStore(engine, Subject.DATASETS)
    found = [Found(scope="main", column="A.x", distance="psi", value=0.3, drifted=True)]
    store.add(profiled(None, 1, {key(): column(1)}))
    store.profiles.set_references("main", {"A.x": column(1)}, "ann")
    store.profiles.record("main", found)
    assert store.profiles.newest("main") == HOUR
    assert (datasets.newest("main"), datasets.found()) == (None, [])
    assert datasets.window("main", HOUR, HOUR + timedelta(hours=1), ["A.x"]) == {}
    assert datasets.references("main", ["A.x"]) == {}
    datasets.record("main", [])
    store.prune(HOUR - timedelta(hours=1), ["main"])
    assert store.profiles.found(["main"]) == store.profiles.found(limit=1) == found
    engine.dispose()
