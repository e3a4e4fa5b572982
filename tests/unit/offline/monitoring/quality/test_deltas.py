"""Insert deltas: each row once, however often its record comes and wherever the reading begins again."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import INT, STRING
from caraway.graph.expectations import ExpectationSuite
from caraway.graph.plan.model import CheckPlan, Column, RecordSchema, TopicKind, TopicPlan
from caraway.offline.monitoring.quality.deltas import DeltaReader
from caraway.offline.monitoring.quality.seen import SeenRecords
from tests.unit.graph.building import dataset

KEY, VALUE = Column(name="k", dtype=STRING), Column(name="v", dtype=INT)
SCHEMA = RecordSchema(keys=(KEY,), columns=(KEY, VALUE), timestamp="at", fingerprint=7)
CODEC = RecordCodec(SCHEMA)
SUITE = ExpectationSuite(name="s", version=0, expectations=())
SPEC = dataset("D", {"k": STRING, "v": INT}, keys=["k"])


def plan(*, repeats: bool, schema: RecordSchema = SCHEMA) -> CheckPlan:
    topic = TopicPlan(dataset="D", name="t", kind=TopicKind.VERSIONS, schema=schema, disorder_us=0)
    return CheckPlan(dataset=SPEC, suite=SUITE, topic=topic, schema=schema, repeats=repeats, erased_on="t")


def message(
    offset: int, op: int, value: int, *, time_us: int = 0, record_id: bytes | None = None, rev: int = 0
) -> Message:
    data = CODEC.encode_value(
        op=op, time_us=time_us, ingested_us=offset, row=["a", value], record_id=record_id, rev=bytes([rev])
    )
    return CODEC.encode_key(["a"]), data, 0, offset


def values(messages: list[Message], seen: SeenRecords | None = None, counted: int = 0) -> list[Any]:
    found = DeltaReader(plan(repeats=seen is not None), seen).deltas(messages, {0: counted})
    return found.columns(["v"])["v"]


def test_rows_of_a_source_are_those_of_puts() -> None:
    records = [message(0, PUT, 1), message(1, DELETE, 2), message(2, PUT, 1), (MARKER_KEY, b"x", 0, 3)]
    assert values([*records, (None, b"unreadable", 0, 4), message(5, PUT, 9)]) == [1, 1, 9]


def test_a_block_has_many_rows() -> None:
    schema = RecordSchema(keys=(), columns=(VALUE,), timestamp="at", fingerprint=8)
    codec = RecordCodec(schema)
    parts = [codec.encode_value(op=PUT, time_us=n, ingested_us=0, row=[n]) for n in range(3)]
    found = DeltaReader(plan(repeats=False, schema=schema), None).deltas([(None, block_of(parts), 0, 0)], {})
    assert found.columns(["v", "at"]) == {"v": [0, 1, 2], "at": [0, 1, 2]}


def test_a_record_that_comes_again_counts_once(tmp_path: Path) -> None:
    seen = SeenRecords(tmp_path / "seen.db")
    one, other = b"one", b"other"
    assert values([message(0, PUT, 1, record_id=one), message(1, PUT, 1, record_id=one)], seen) == [1]
    # A revision that changes nothing is none; one that does is a new row.
    assert values([message(2, PUT, 1, record_id=one, rev=1), message(3, PUT, 5, record_id=one, rev=2)], seen) == [5]
    assert values([message(4, PUT, 6, record_id=one, rev=1)], seen) == []
    assert values([message(5, RETRACT, 0, record_id=one, rev=3), message(6, PUT, 5, record_id=one, rev=4)], seen) == [5]
    # A put wins over a retraction of the same revision, whichever comes first.
    assert values([message(7, RETRACT, 0, record_id=other), message(8, PUT, 7, record_id=other)], seen) == [7]
    assert values([message(9, RETRACT, 0, record_id=other)], seen) == []


@pytest.mark.parametrize(("keys", "rows"), [((), [1]), ((KEY,), [1, 1])])
def test_a_record_without_a_key_may_come_again_to_another_partition(
    tmp_path: Path, keys: tuple[Column, ...], rows: list[int]
) -> None:
    schema = RecordSchema(keys=keys, columns=(KEY, VALUE), timestamp="at", fingerprint=7)
    seen = SeenRecords(tmp_path / "seen.db", revised=False)
    reader = DeltaReader(plan(repeats=True, schema=schema), seen)
    _, data, _, _ = message(0, PUT, 1, record_id=b"one")
    # Under another key, the row of an identity is another one.
    messages = [(b"key" if keys else None, data, partition, 0) for partition in (0, 1)]
    assert reader.deltas(messages, {}).columns(["v"])["v"] == rows
    assert reader.deltas([(None, data, 1, 1)], {}).rows == []


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([PUT, PUT, RETRACT, DELETE]),
        st.integers(0, 1),
        st.sampled_from([b"i", b"j"]),
        st.integers(0, 3),
    ),
    max_size=12,
)


@given(records=RECORDS, kept=st.integers(0, 12), recorded=st.integers(0, 12))
def test_a_reading_that_begins_again_counts_the_same(
    tmp_path_factory: Any, records: list[tuple[int, int, bytes, int]], kept: int, recorded: int
) -> None:
    messages = [message(n, op, value, record_id=i, rev=rev) for n, (op, value, i, rev) in enumerate(records)]
    folder = tmp_path_factory.mktemp("seen")
    whole = values(messages, SeenRecords(folder / "whole.db"))
    # The process is killed after `recorded` messages were recorded, when its own file had fewer of them.
    recorded = min(recorded, len(messages))
    kept = min(kept, recorded)
    seen = SeenRecords(folder / "cut.db")
    before = values(messages[:kept], seen)
    seen.commit({0: kept})
    before += values(messages[kept:recorded], seen)
    seen.close()
    again = SeenRecords(folder / "cut.db")
    assert again.positions() == {0: kept}
    assert before + values(messages[kept:], again, counted=recorded) == whole
    again.close()
