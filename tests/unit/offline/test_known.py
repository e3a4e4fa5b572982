"""Reads of what was known: each is the ordinary read of the records that had been ingested by its time."""

import random
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from caraway.compute.query.model import Rows
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexPlan
from caraway.offline.reader import OfflineReader
from tests.effort import part_of
from tests.unit.dataplane.index.oracle import SECOND, Case, Job, fresh_random, random_change
from tests.unit.dataplane.index.test_against_engine import CASES
from tests.unit.offline.test_reader import SPILLED, bits, keys_of, numbers_of, random_versions, versions_plan
from tests.unit.offline.topics import GivenTopics, topic_of

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

TIMES = [n * SECOND // 2 + more for n in range(-12, 70, 5) for more in (-1, 0)]


def check(
    plan: IndexPlan,
    messages: Sequence[tuple[Message, int]],
    keys: Sequence[tuple[object, ...]],
    ats: Sequence[int] = TIMES,
    *,
    replays: bool | None = None,
) -> None:
    """Compare reads at some times; `messages` have their ingestion times."""
    columns = [field.name for field in plan.fields]
    asked = [(key, at) for key in keys for at in ats]
    every, at_us = [key for key, _ in asked], [at for _, at in asked]
    read: list[Rows] = []
    for memory in (None, SPILLED):
        source = given(plan, messages)
        with OfflineReader(source, [plan], [topic_of(plan)], known=True, memory=memory) as known:
            # Decayed sums are left out: they depend on the order in which an index got its inputs.
            left_out = {spec.into for spec in plan.aggregates if spec.function == "exp_decay_sum"}
            names = [name for name in columns if name not in left_out]
            read.append(known.read(plan.dataset, every, at_us, names))
            if replays is not None:
                assert bool(known._replayed) == replays
    values, found = read[0]
    assert bits(read[1]) == bits(read[0])
    for at in part_of([*set(ats)]):
        seen = [(message, ingested) for message, ingested in messages if ingested <= at]
        rows = [row for row, (_, time) in enumerate(asked) if time == at]
        with OfflineReader(given(plan, seen), [plan], [topic_of(plan)]) as ordinary:
            wanted, there = ordinary.read(plan.dataset, [every[row] for row in rows], at, names)
        assert [found[row] for row in rows] == there, at
        for name, column, expected in zip(names, values, wanted, strict=True):
            assert bits([column[row] for row in rows]) == bits(expected), (name, at)


def given(plan: IndexPlan, messages: Sequence[tuple[Message, int]]) -> GivenTopics:
    codec = RecordCodec(topic_of(plan).schema)
    written = []
    for (key, value, partition, offset), ingested in messages:
        record = msgspec.structs.replace(codec.decode_value(value or b""), ingested=ingested)
        text = codec.encode_value(
            op=record.op,
            time_us=record.time,
            ingested_us=ingested,
            row=record.row,
            record_id=record.id,
            rev=record.rev,
        )
        written.append((key, text, partition, offset))
    return GivenTopics({plan.topic: written})


def ingestion(rng: random.Random, time_us: int) -> int:
    """Return when a record comes: soon, late, or long before its time."""
    return time_us + rng.choice([0, 1, SECOND, 3 * SECOND, 20 * SECOND, -30 * SECOND])


def arriving(rng: random.Random, plan: IndexPlan, messages: Iterable[Message]) -> list[tuple[Message, int]]:
    """Return messages with the times at which they come."""
    codec = RecordCodec(plan.schema)
    return [(message, ingestion(rng, codec.decode_value(message[1] or b"").time)) for message in messages]


def logged(rng: random.Random, found: Case, job: Job) -> list[tuple[Message, int]]:
    """Log random changes in a job; return what it sends, with the times at which that comes."""
    messages = [message for _ in range(40) for message in job.log(random_change(found, rng))]
    return arriving(rng, found.plan, messages)


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_aggregates_of_what_was_known(found: Case) -> None:
    job = Job(found)
    messages = logged(fresh_random(), found, job)
    check(found.plan, messages, keys_of(found, job)[:24], TIMES[::3])


@pytest.mark.parametrize("name", ["events, continuous", "a table, continuous"])
def test_sums_and_counts_of_what_was_known_need_no_index(name: str) -> None:
    small, plan = numbers_of(name, "count", "sum", "average", "stddev", "variance")
    messages = logged(fresh_random(), small, Job(small))
    codec = RecordCodec(small.plan.schema)
    ids = [codec.decode_value(message[1] or b"").id for message, _ in messages]
    once = [found for found, identity in zip(messages, ids, strict=True) if ids.count(identity) == 1]
    check(plan, once, [("a",), ("b",), ("never",)], replays=False)


@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_versions_that_were_known(seed: int, *, revised: bool) -> None:
    rng, plan = random.Random(seed), versions_plan(revised=revised)
    keys = [(g, d) for g in ("a", "b") for d in ("1.50", "-0.01")]
    messages = arriving(rng, plan, random_versions(plan, rng, 60, keys))
    check(plan, messages, [*keys, ("never", "0.00")], replays=revised)
