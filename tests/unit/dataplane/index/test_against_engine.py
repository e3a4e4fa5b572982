"""Every aggregate over every window: the index answers as the in-process engine does."""

import math
import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from caraway.compute.reference.changes import SourceChange
from caraway.dataplane.index.aggregates.layout import Layout
from caraway.dataplane.index.aggregates.partials import Partial, unpack
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.plan.model import RecordSchema
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from tests.unit.dataplane.index.oracle import SECOND, Case, Job, case, fresh_random, random_change

FOREVER = ContinuousWindow(length_us=None)
CONTINUOUS = (FOREVER, ContinuousWindow(length_us=2 * SECOND), ContinuousWindow(length_us=9 * SECOND))
TUMBLING = HoppingWindow(length_us=3 * SECOND, stride_us=3 * SECOND)
HOPPING = HoppingWindow(length_us=7 * SECOND, stride_us=3 * SECOND)
FOREVER_HOPPING = HoppingWindow(length_us=None, stride_us=4 * SECOND)
DISCRETE = (TUMBLING, HOPPING, FOREVER_HOPPING)
SESSION = SessionWindow(gap_us=2 * SECOND)
LATE = tuple(HoppingWindow(length_us=w.length_us, stride_us=w.stride_us, lookback_us=4 * SECOND) for w in DISCRETE)

CASES = [
    case("events, continuous", CONTINUOUS),
    case("events, discrete", DISCRETE),
    case("events, with a lookback", LATE),
    case("events along a column, continuous", CONTINUOUS, along=True),
    case("events along a column, discrete", DISCRETE, along=True),
    case("a table, continuous", CONTINUOUS, keyed=True),
    case("a table, forever", (FOREVER_HOPPING, HoppingWindow(length_us=None, stride_us=SECOND)), keyed=True),
    case("a table along a column, continuous", CONTINUOUS, keyed=True, along=True),
    case("a table along a column, discrete", LATE, keyed=True, along=True),
    case("tumbling windows as keys", (None,), groupby=TUMBLING),
    case("hopping windows as keys", (None,), groupby=HOPPING),
    case("windows as keys, with a lookback", (None,), groupby=LATE[1]),
    case("windows alone", (), groupby=HOPPING, bare=True),
    case("sessions as keys", (None,), groupby=SESSION),
    case("sessions alone", (), groupby=SESSION, bare=True),
]
# Both make deep pyramids of few aggregate inputs; tiles of the second keep few distinct values, those of the first all.
EXACT, TIGHT = Geometry(base_bits=16, fan_bits=2, split=3), Geometry(base_bits=16, fan_bits=2, split=3, values=2)
# The greatest relative error of a quantile from a sketch: the middle of a bin is at most 1/128 away.
SKETCHED = 0.01
DECAYED = 1e-12


# A sum that doesn't fit is null in both; the engine warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:aggregate")


# A case takes half a second, so the fast tier takes every third.
@pytest.mark.parametrize(
    "found", [pytest.param(c, id=c.name, marks=[pytest.mark.slow] * (n % 3 > 0)) for n, c in enumerate(CASES)]
)
def test_the_index_answers_as_the_engine_does(found: Case, tmp_path: Path) -> None:
    rng = fresh_random()
    check(found, rng.choice([EXACT, TIGHT]), rng.randrange(2**32), tmp_path, rounds=1)


_MORE = pytest.mark.full(reason="another minute; each run has a trace of three rounds for each case and geometry")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=_MORE) for seed in (1, 2))])
@pytest.mark.parametrize("geometry", [EXACT, TIGHT], ids=["exact", "tight"])
@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_many_traces(found: Case, geometry: Geometry, seed: int, tmp_path: Path) -> None:
    check(found, geometry, seed, tmp_path, rounds=3)


def check(found: Case, geometry: Geometry, seed: int, tmp_path: Path, *, rounds: int) -> None:
    """Log some rows in batches, and compare all columns of index and engine after each."""
    rng = random.Random(f"{found.name} {seed}")
    job = Job(found)
    with IndexStore(tmp_path / "index", geometry=geometry, cache_bytes=1 << 20) as store:
        writer, reader = IndexWriter(store, cached_tiles=8), IndexReader(store)
        waiting: list[Any] = []
        for _ in range(rounds):
            for _ in range(rng.choice([5, 30])):
                waiting += job.log(random_change(found, rng))
            rng.shuffle(waiting)
            again = rng.sample(waiting, len(waiting) // 4)
            for start in range(0, len(waiting), 7):
                applied = writer.apply(found.plan, waiting[start : start + 7])
                assert not applied.refused
            writer.apply(found.plan, again)
            waiting = []
            compare(found, job, reader, times(job, rng)[: 4 * rounds], exact=geometry is EXACT)


def change(key: str, second: int, *, due: int = 0, delete: bool = False) -> SourceChange:
    """Return a change of a key of the table at a second; `due` is a second, too."""
    row = {"g": "a", "n": 1, "x": 0.5, "d": None, "s": None, "l": [], "p": [0, None], "due": due * SECOND, "k": key}
    return SourceChange(time_us=second * SECOND, row=row, delete=delete)


ALONG = case("along a column", (HoppingWindow(length_us=SECOND, stride_us=SECOND),), keyed=True, along=True)
OVER_ALL = case("over all of the past", (HoppingWindow(length_us=None, stride_us=SECOND),), keyed=True)


@pytest.mark.parametrize(
    ("found", "changes", "closes"),
    [
        pytest.param(ALONG, [change("u", 0, due=1), change("u", 0, due=0)], False, id="replaced"),
        pytest.param(ALONG, [change("u", 0, due=1), change("v", 0, due=0)], True, id="not replaced"),
        pytest.param(OVER_ALL, [change("u", 0), change("v", 5), change("v", 5, delete=True)], False, id="deleted"),
        pytest.param(OVER_ALL, [change("u", 0), change("v", 5)], True, id="not deleted"),
    ],
)
def test_a_version_that_never_held_closes_no_window(
    found: Case, changes: list[SourceChange], closes: bool, tmp_path: Path
) -> None:
    job = Job(found)
    messages = [message for one in changes for message in job.log(one)]
    for number, order in enumerate(permutations(messages)):
        with IndexStore(tmp_path / str(number), geometry=EXACT, cache_bytes=1 << 20) as store:
            writer, reader = IndexWriter(store, cached_tiles=8), IndexReader(store)
            for message in order:
                assert not writer.apply(found.plan, [message]).refused
            compare(found, job, reader, [20 * SECOND], exact=True)
    assert job.engine.lookup(found.out.name, [("a",)], 20 * SECOND, ["g"])[1] == [closes]


def times(job: Job, rng: random.Random) -> list[int]:
    """Return times at, before and after those of the events and of their ends."""
    near = [change.time_us for _, change in job.events]
    edges = [0, 2 * SECOND, 3 * SECOND, 9 * SECOND + SECOND, 10**12]
    picked = [rng.choice(near) + rng.choice(edges) + rng.choice([-1, 0, 0, 1]) for _ in range(6)]
    asked = [*picked, *(n * SECOND for n in rng.sample(range(-6, 40), 4)), 10**15, -(10**15)]
    rng.shuffle(asked)
    return asked


def compare(found: Case, job: Job, reader: IndexReader, ats: Sequence[int], *, exact: bool) -> None:
    keys: list[tuple[object, ...]] = [("a",), ("b",), ("never",)]
    match found.plan.window:
        case HoppingWindow(length_us=int(length_us), stride_us=stride_us):
            ends = [length_us + n * stride_us for n in range(-4, 10)]
            keys = [(*key, [end - length_us, end]) for key in keys for end in (*ends, 5)]
        case SessionWindow():
            bounds: list[Any] = [row["window"] for row in job.engine.rows(found.out.name)]
            cut = [[begin, begin + SECOND + 1] for begin, _ in bounds]
            keys = [(*key, window) for key in keys for window in (*bounds, *cut, [SECOND, SECOND + 1], [1, 2])]
        case _:
            pass
    schema = RecordSchema(keys=found.plan.keys, columns=found.plan.keys, timestamp="t", fingerprint=0)
    encode = RecordCodec(schema).encode_key
    for at in ats:
        got, there = reader.read(found.plan, [encode(key) or b"" for key in keys], at, found.columns)
        expected, known = job.engine.lookup(found.out.name, keys, at, found.columns)
        assert there == known, (at, list(zip(keys, there, known, strict=True)))
        functions = {spec.into: spec for spec in found.operator.aggregates}
        for name, left, right in zip(found.columns, got, expected, strict=True):
            for position, (value, wanted) in enumerate(zip(left, right, strict=True)):
                if job.events and (known[position] or name not in {"g", "window"}):
                    assert agrees(functions.get(name), value, wanted, exact=exact), (
                        functions.get(name, name),
                        at,
                        keys[position],
                        value,
                        wanted,
                    )


def agrees(spec: Any, value: object, wanted: object, *, exact: bool) -> bool:
    if isinstance(value, float) and isinstance(wanted, float) and spec is not None:
        if spec.function is AggregateFunction.EXP_DECAY_SUM:
            # Terms of both signs may cancel, so the tolerance is relative to the size of the terms, not of the sum.
            return math.isclose(value, wanted, rel_tol=DECAYED, abs_tol=DECAYED * 1e19)
        if spec.function is AggregateFunction.QUANTILE and not exact:
            return math.isclose(value, wanted, rel_tol=SKETCHED)
    return same(value, wanted)


def same(left: object, right: object) -> bool:
    if isinstance(left, list) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        # Zeros of other signs are equal, but shown differently.
        return math.isnan(right) if math.isnan(left) else str(left) == str(right)
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_inputs_added_one_by_one_are_those_added_at_once(found: Case) -> None:
    rng, job = fresh_random(), Job(found)
    layout, codec = Layout(found.plan, TIGHT.values), RecordCodec(found.plan.schema)
    sent = [message for _ in range(20) for message in job.log(random_change(found, rng))]
    records = [codec.decode_value(value) for _, value, _, _ in sent if value is not None]
    inputs = [(r.time, layout.values(r), r.id or b"") for r in records if r.op == PUT]
    single = layout.empty()
    for added in inputs:
        layout.add(single, [added])
    assert single.pack() == layout.partial(inputs).pack()
    unpacked = layout.empty() if layout.extras else Partial.restored(unpack(single.pack()))
    assert layout.extras or unpacked.pack() == single.pack()
