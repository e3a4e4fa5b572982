"""The metrics of sources: whatever polls and crashes happen, each row that was read is in exactly one count."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.rows.sampling import sampler
from caraway.dataplane.ingest.metrics import FILTERED_ROWS, POLLS, SOURCE_BYTES, SOURCE_ROWS
from caraway.dataplane.topics.metrics import ERROR_LOG_ROWS
from caraway.expr import col
from caraway.graph.sources import Cdc, Computed, SampleSpec
from tests.unit.dataplane.sources.test_sources import SOURCE, World, letters, plan_of, record, rows

NOON = 1_700_000_000
CHOSEN = replace(
    SOURCE,
    where=Computed(by=(col("age") > 0).node),
    since_us=NOON * 1_000_000,
    until_us=(NOON + 10) * 1_000_000,
    sample=SampleSpec(rate=0.5, using=("user",)),
)
PLAN = plan_of(CHOSEN)
_IN_SAMPLE = sampler(PLAN.dataset, CHOSEN)
INSIDE, OUTSIDE = (
    next(name for name in map(str, range(100)) if _IN_SAMPLE({"user": name, "age": 1, "at": NOON}) is wanted)
    for wanted in (True, False)
)
# One record of each kind, by what has to become of it.
KINDS: Mapping[str, bytes | None] = {
    "admitted": record(INSIDE, 1, NOON),
    "error decode": b"no json",
    "error cast": orjson.dumps({"user": INSIDE, "age": 1, "at": "noon"}),
    # The condition reads this column, so its cast is part of it.
    "error where": record(INSIDE, "old", NOON),
    "filtered where": record(INSIDE, 0, NOON),
    "filtered since": record(INSIDE, 1, NOON - 1),
    "filtered until": record(INSIDE, 1, NOON + 10),
    "filtered sample": record(OUTSIDE, 1, NOON),
    "no row": None,
}


def counts() -> Counter[str]:
    """Return the metrics of all sources of this process, those of filtered rows and errors by reason and stage."""
    found: Counter[str] = Counter()
    for metric, label, prefix in (
        (SOURCE_ROWS, "metric", ""),
        (FILTERED_ROWS, "reason", "filtered "),
        (ERROR_LOG_ROWS, "stage", "error "),
        (SOURCE_BYTES, "format", "bytes "),
        (POLLS, "source_name", "polls "),
    ):
        for family in metric.collect():
            for sample in family.samples:
                if sample.name.endswith(("_total", "_count")) and sample.labels["dataset_name"] == "Users":
                    found[prefix + sample.labels[label]] += int(sample.value)
    return found


def accounted(found: Counter[str]) -> int:
    filtered = sum(number for name, number in found.items() if name.startswith("filtered "))
    return found["msgs_processed"] + found["schema_error"] + found["duplicate"] + filtered


SOURCES = st.dictionaries(st.sampled_from("012"), st.lists(st.sampled_from(sorted(KINDS)), max_size=30), min_size=1)


@pytest.mark.spec("connectors:10:2", "featuresets:11:2")
@given(source=SOURCES, data=st.data())
def test_records_read_are_those_admitted_filtered_and_refused(
    source: Mapping[str, Sequence[str]], data: st.DataObject
) -> None:
    before = counts()
    world = World({name: [KINDS[kind] for kind in kinds] for name, kinds in source.items()})
    world.read_all(world.worker(lambda: data.draw(st.integers(1, 7), label="poll"), plan=PLAN))
    world.now += 10
    found = counts() - before
    kinds = Counter(kind for kinds in source.values() for kind in kinds)
    assert found["msgs_read"] == accounted(found) == kinds.total() - kinds["no row"]
    assert found["msgs_processed"] == kinds["admitted"] == len(rows(world, PLAN))
    assert found["schema_error"] == sum(n for kind, n in kinds.items() if kind.startswith("error "))
    assert found["schema_error"] == len(letters(world))
    for kind in KINDS:
        if kind.startswith(("filtered", "error")):
            assert found[kind] == kinds[kind]
    read = sum(len(value) for values in world.source.values() for value in values if value is not None)
    assert found["bytes json"] == read


@given(source=SOURCES, data=st.data())
def test_rows_that_are_read_again_after_a_crash_are_duplicates(
    source: Mapping[str, Sequence[str]], data: st.DataObject
) -> None:
    before = counts()
    world = World({name: [KINDS[kind] for kind in kinds] for name, kinds in source.items()})
    for _ in world.read_with_crashes(data, PLAN):
        found = counts() - before
        assert found["msgs_read"] == accounted(found)
    # A batch that was being written when the process died was counted by nobody; its rows are duplicates later. None is
    # counted as admitted, or refused, twice.
    kinds = Counter(kind for kinds in source.values() for kind in kinds)
    refused = sum(n for kind, n in kinds.items() if kind.startswith("error "))
    assert found["msgs_processed"] <= kinds["admitted"]
    assert found["schema_error"] == sum(n for kind, n in found.items() if kind.startswith("error ")) <= refused
    assert found["msgs_processed"] + found["schema_error"] + found["duplicate"] >= kinds["admitted"] + refused


def test_a_row_that_was_written_before_a_crash_is_a_duplicate() -> None:
    world = World({"0": [KINDS["admitted"], KINDS["error cast"], KINDS["filtered where"], KINDS["admitted"]]})
    first = world.worker(lambda: 3, plan=PLAN)
    before = counts()
    # The process dies when three rows are durable and no checkpoint is saved.
    assert first.step()
    assert counts() - before >= Counter({"msgs_read": 3, "msgs_processed": 1, "schema_error": 1, "filtered where": 1})
    before, second = counts(), world.worker(plan=PLAN)
    world.read_all(second)
    found = counts() - before
    assert found == Counter(
        {
            "msgs_read": 4,
            "msgs_processed": 1,
            "duplicate": 2,
            "filtered where": 1,
            "bytes json": sum(len(value or b"") for value in world.source["0"]),
            "polls k": 1,
        }
    )


def test_messages_of_change_capture_that_change_nothing_are_counted_as_such() -> None:
    row = {"user": "a", "age": 1, "at": NOON}
    envelopes = [
        {"op": "c", "after": row, "ts_ms": NOON * 1000},
        {"op": "m", "message": {}},
        {"op": "u", "before": {**row, "age": 0}, "after": row, "ts_ms": NOON * 1000},
        {"op": "d", "before": {**row, "age": 0}, "ts_ms": NOON * 1000},
        {"op": "t"},
    ]
    plan = plan_of(replace(SOURCE, cdc=Cdc.DEBEZIUM, where=CHOSEN.where))
    before = counts()
    world = World({"0": [orjson.dumps(envelope) for envelope in envelopes]})
    world.read_all(world.worker(plan=plan))
    found = counts() - before
    wanted = {"msgs_read": 5, "msgs_processed": 2, "schema_error": 1, "error envelope": 1}
    wanted |= {"filtered no_change": 1, "filtered where": 1}
    assert {name: found[name] for name in wanted} == wanted
    assert found["msgs_read"] == accounted(found)
