"""Reads from the records of a few keys are those from all records, also as these were known earlier."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from caraway.dataplane.index.storage.intervals import is_divisible
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexPlan
from caraway.offline.history.records import TopicRecords
from caraway.offline.monitoring.skew.history import LaterRecords
from caraway.offline.narrowing import KeyRecords, NarrowReader
from caraway.offline.reader import OfflineReader
from tests.unit.dataplane.index.oracle import SECOND, Case, Job
from tests.unit.dataplane.index.test_against_engine import CASES
from tests.unit.offline.test_known import arriving, given, logged
from tests.unit.offline.test_reader import bits, keys_of, random_versions, versions_plan
from tests.unit.offline.topics import topic_of

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

TIMES = [n * SECOND // 2 for n in range(-2, 60, 15)]
LATER_US = 2 * SECOND

Key = tuple[object, ...]


def reader(source: TopicRecords, *, plan: IndexPlan, known: bool) -> OfflineReader:
    return OfflineReader(source, [plan], [topic_of(plan)], known=known)


def check(plan: IndexPlan, messages: Sequence[tuple[Message, int]], keys: Sequence[Key]) -> None:
    """Compare reads of some of the keys at some times."""
    left_out = {spec.into for spec in plan.aggregates if spec.function == "exp_decay_sum"}
    names = [field.name for field in plan.fields if field.name not in left_out]
    asked = [(key, at) for key in keys for at in TIMES]
    at_us = [at for _, at in asked]

    def read(found: Any) -> Any:
        values, there = found.read(plan.dataset, [key for key, _ in asked], at_us, names)
        return [bits(column) for column in values], there

    for known in (False, True):
        source, make = given(plan, messages), partial(reader, plan=plan, known=known)
        narrow = KeyRecords(source, [plan])
        with make(source) as whole:
            expected = read(whole)
        assert read(NarrowReader(narrow, make)) == expected
        # The second read takes the records that the first one has kept.
        assert read(NarrowReader(narrow, make)) == expected
    then = partial(reader, plan=plan, known=True)
    later = NarrowReader(narrow, lambda records: then(LaterRecords(records, LATER_US)))
    moved = given(plan, [(message, ingested + LATER_US) for message, ingested in messages])
    with then(moved) as whole:
        assert read(later) == read(whole)
    if is_divisible(plan):
        rows = narrow.of(plan.dataset, keys[:1]).records(
            topic_of(plan), [column.name for column in plan.schema.columns]
        )
        assert len(rows.rows) < len(messages)


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_aggregates(found: Case) -> None:
    job = Job(found)
    messages = logged(random.Random(5), found, job)
    keys = keys_of(found, job)
    check(found.plan, messages, keys[: max(1, len(keys) // 3)])


@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_versions(seed: int, *, revised: bool) -> None:
    rng, plan = random.Random(seed), versions_plan(revised=revised)
    keys = [(g, d) for g in ("a", "b", "c") for d in ("1.50", "-0.01")]
    messages = arriving(rng, plan, random_versions(plan, rng, 60, keys))
    check(plan, messages, [keys[0], ("never", "0.00"), keys[3]])
