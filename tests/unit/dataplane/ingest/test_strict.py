"""Strict expectations: a dataset takes exactly the rows that pass them, by each way that rows of a source take."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway import lib
from caraway.compute.rows.batches import Stage
from caraway.dataplane.ingest.table import ColumnTable, InsertTable, RowTable
from caraway.dataplane.ingest.targets import Encoded, Target
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, Constant, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec, Graph
from caraway.lib.expectations import suite_of
from tests.unit.compute.expectations.row_by_row import check_rows
from tests.unit.dataplane.ingest.contexts import CAPTURED, TOPIC
from tests.unit.graph.building import dataset

AT = datetime(2026, 5, 1, tzinfo=UTC)
APPEND = SourceSpec(connector=TOPIC, cdc=Cdc.APPEND, disorder_us=0)
CHECKS = [
    lib.expect_column_values_to_not_be_null("n"),
    lib.expect_column_values_to_be_between("n", 0, 2, strict_max=True),
    lib.expect_column_values_to_be_between("price", 0, row_condition='name != "free"'),
    lib.expect_column_values_to_match_regex("name", "^[a-z]+$"),
    lib.expect_column_values_to_be_in_set("name", ["a", "free"]),
    lib.expect_column_pair_values_A_to_be_greater_than_B("price", "n", ignore_row_if="neither"),
    lib.expect_column_values_to_be_between("at", min_value=str(AT)),
]
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-1, 3),
        "price": st.sampled_from([-1.0, 0.0, 1.5, float("inf")]),
        "name": st.sampled_from(["a", "b", "free", "A", ""]),
        "at": st.sampled_from([AT, AT - timedelta(microseconds=1)]),
    }
)
DAMAGED = st.sampled_from([{"n": "none"}, {"n": 1, "price": None, "name": "a", "at": "never"}, 3, {}])


def sales(checks: Sequence[Any], source: SourceSpec = APPEND, *, key: bool = False) -> DatasetSpec:
    columns: dict[str, DataType] = {"name": STRING, "n": optional(INT), "price": FLOAT, "at": DATETIME}
    strict = suite_of("Sales", 0, checks, strict=True)
    return dataset("Sales", columns, keys=["name"] if key else [], sources=(source,), expectations=strict)


def target(checks: Sequence[Any], source: SourceSpec = APPEND, *, key: bool = False) -> Target:
    (ingest,) = plan_graph(Graph(datasets=(sales(checks, source, key=key),))).ingests
    return Target(ingest)


def taken(made: Target, encoded: Encoded) -> list[tuple[int, int, Any]]:
    codec = RecordCodec(made.schema)
    return [(row, place, codec.decode_value(value).row) for row, place, _, value in encoded.records]


def passes(row: dict[str, Any], checks: Sequence[Any]) -> bool:
    frame = pd.DataFrame([row]).astype({"n": "Int64"})
    # The column of a null alone has no values that could be compared with it.
    frame = frame if row["n"] is not None else frame.assign(n=pd.Series([None], dtype=object))
    return not any(outcome.failures for outcome in check_rows(suite_of("Sales", 0, checks), frame))


@given(rows=st.lists(ROW | DAMAGED, max_size=6), checks=st.lists(st.sampled_from(CHECKS), min_size=1, max_size=3))
@example(rows=[{"n": 1, "price": -1.0, "name": "A", "at": AT}], checks=[CHECKS[2], CHECKS[3]])
def test_exactly_the_rows_that_pass_are_taken(rows: list[Any], checks: list[Any]) -> None:
    sent = [{**row, "at": str(row["at"])} if isinstance(row, dict) and "at" in row else row for row in rows]
    faults = {number: "is no object" for number, row in enumerate(sent) if not isinstance(row, dict)}
    plain = target(checks)
    admitting_all = target(checks, replace(APPEND, since_us=0))
    copying = target(checks, replace(APPEND, preproc=(("price", Ref(path=("price",))),)))
    captured = target(checks, SourceSpec(connector=CAPTURED, cdc=Cdc.NATIVE, disorder_us=0))
    lenient = Target(replace(plain.plan, dataset=replace(plain.plan.dataset, expectations=None)))
    assert (plain.is_plain, admitting_all.is_plain) == (True, False)
    whole = lenient.encode(RowTable(sent, faults), 0, len(sent), 0)
    valid = {row for row, _, _, _ in whole.records}
    expected = [row for row in sorted(valid) if passes(rows[row], checks)]
    for made in (plain, admitting_all, copying):
        found = made.encode(RowTable(sent, faults), 0, len(sent), 0)
        assert [row for row, _, _ in taken(made, found)] == expected
        assert taken(made, found) == [one for one in taken(lenient, whole) if one[0] in expected]
        refused = {error.row for error in found.errors if error.stage is Stage.EXPECTATION}
        assert refused == valid - set(expected)
        # Each row is taken or refused, and each other reason is as it was without the expectations.
        assert {error.row for error in found.errors} | set(expected) == set(range(len(rows)))
        assert not found.left_out
    objects = [row for row in sent if isinstance(row, dict)]
    envelopes = [{"op": "c", "before": None, "after": row, "ts_ms": 0, "source": {}} for row in objects]
    bare = captured.encode(InsertTable(objects, envelopes.__getitem__), 0, len(objects), 0)
    assert bare == captured.encode(RowTable(envelopes, {}), 0, len(objects), 0)
    assert [row for _, _, row in taken(captured, bare)] == [row for _, _, row in taken(plain, found)]


def test_a_slice_of_columns_has_the_numbers_of_its_rows() -> None:
    made = target([CHECKS[1]])
    count = 6
    table = ColumnTable({"n": [0, 1, 5, 1, 7, 0], "name": ["a"] * 6, "price": [0.0] * 6, "at": [str(AT)] * 6}, count)
    found = made.encode(table, 1, 5, 0)
    assert [row for row, _, _, _ in found.records] == [1, 3]
    assert [(error.row, error.field, error.stage) for error in found.errors] == [
        (2, "n", Stage.EXPECTATION),
        (4, "n", Stage.EXPECTATION),
    ]
    assert found.errors[0].message == (
        "5 isn't as expected by expect_column_values_to_be_between(min_value=0, max_value=2, strict_min=False, "
        "strict_max=True, parse_strings_as_datetimes=False), which is strict"
    )


def test_what_a_source_makes_of_a_row_is_checked_and_rows_that_it_leaves_out_are_not() -> None:
    made = target(
        [CHECKS[1]], replace(APPEND, preproc=(("n", Constant(value=9, dtype=INT)),), until_us=2_000_000_000_000_000)
    )
    rows = [{"name": "a", "price": 1.0, "at": str(AT)}, {"name": "a", "price": 1.0, "at": "2100-01-01"}]
    found = made.encode(RowTable(rows, {}), 0, 2, 0)
    assert [(error.row, error.stage) for error in found.errors] == [(0, Stage.EXPECTATION)]
    assert (found.records, sum(found.left_out.values())) == ([], 1)


def envelope(op: str, **sides: Any) -> dict[str, Any]:
    rows = {side: {"price": 1.0, "at": str(AT), **row} for side, row in sides.items()}
    return {"op": op, "before": None, "after": None, "ts_ms": 1_777_777_777_000, "source": {}} | rows


def test_a_change_that_is_refused_leaves_the_old_row_as_it_is() -> None:
    made = target([CHECKS[1]], replace(APPEND, cdc=Cdc.DEBEZIUM), key=True)
    changes = [
        envelope("c", after={"name": "a", "n": 1}),
        # The key changes, which is a delete and an insert.
        envelope("u", before={"name": "a", "n": 1}, after={"name": "b", "n": 7}),
        # A delete is no row, so nothing is expected of it.
        envelope("d", before={"name": "a", "n": 7}),
    ]
    found = made.encode(RowTable(changes, {}), 0, 3, 0)
    assert [row for row, _, _ in taken(made, found)] == [0, 2]
    assert [(error.row, error.stage) for error in found.errors] == [(1, Stage.EXPECTATION)]


def test_checks_that_only_count_refuse_nothing() -> None:
    spec = sales([])
    loose = replace(spec, expectations=suite_of("Sales", 0, [CHECKS[1]]))
    plans = [plan_graph(Graph(datasets=(each,))).ingests[0] for each in (loose, replace(spec, expectations=None))]
    assert plans[0].topic == plans[1].topic
    row = {"n": 7, "name": "a", "price": 1.0, "at": str(AT)}
    assert Target(plans[0]).encode(RowTable([row], {}), 0, 1, 0).errors == []
    # Strict checks say which rows a dataset has, so its data is other data.
    assert target([CHECKS[1]]).topic != plans[0].topic.name


@pytest.mark.parametrize("repaired", [0, None])
def test_a_row_that_is_repaired_is_taken(repaired: int | None) -> None:
    made = target([CHECKS[1]])
    row = {"n": 7, "name": "a", "price": 1.0, "at": str(AT)}
    assert made.encode(RowTable([row], {}), 0, 1, 0).errors
    assert not made.encode(RowTable([{**row, "n": repaired}], {}), 0, 1, 0).errors
