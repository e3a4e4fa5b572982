"""Tests of the engine as a whole: lookups, changes, batches, derived data, erasure, copies."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.changes import SourceChange
from caraway.compute.reference.engine import LocalEngine
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType
from caraway.errors import DefinitionError, InvalidInputError, UnknownEntityError
from caraway.expr.nodes import BinaryOp
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.operators import AssignFunction, Filter, Input, Join, JoinKind, Latest, Operator, Union
from caraway.graph.specs import DatasetSpec
from tests.timeouts import scaled_now
from tests.unit.compute.reference.building import (
    FOREVER,
    SOURCES,
    S,
    aggregate,
    compared,
    dataset,
    derived,
    engine_of,
    events,
    function,
    hopping,
    last,
    row,
    seconds,
    side,
    spec_of,
    value_at,
    versions,
)

F = AggregateFunction
Logged = list[dict[str, Any]]

LATEST = Latest(of=events, keys=("k",))
JOINED = Join(
    left=events,
    right="Sides",
    how=JoinKind.LEFT,
    left_on=("k",),
    right_on=("j",),
    within_low_us=None,
    within_high_us=0,
    fields=("z",),
)


def chain(*operators: tuple[str, Operator]) -> list[DatasetSpec]:
    """Make datasets, each derived from the one before."""
    specs = list(SOURCES)
    for name, operator in operators:
        specs.append(derived(operator, name, specs))
    return specs


# Lookups (section 4 of the specification of datasets).


def test_lookup_is_as_of_and_inclusive() -> None:
    engine = LocalEngine(SOURCES)
    engine.append("Versions", [row("a", 1, 2), row("a", 2, 5, 1.5)])
    columns = ["x", "y", "k", "t"]
    keys = [("a",)] * 5
    values, found = engine.lookup("Versions", keys, [round(at * S) for at in (1.999999, 2, 4.999999, 5, 99)], columns)
    assert found == [False, True, True, True, True]
    assert values == [
        [None, 1, 1, 2, 2],
        [None, None, None, 1.5, 1.5],
        ["a"] * 5,
        [None, 2 * S, 2 * S, 5 * S, 5 * S],
    ]


def test_keys_are_echoed_if_there_is_any_data() -> None:
    engine = LocalEngine(SOURCES)
    assert engine.lookup("Versions", [("a",)], 0, ["k", "x"]) == ([[None], [None]], [False])
    engine.append("Versions", [row("b", 1, 50)])
    assert engine.lookup("Versions", [("a",)], 0, ["k", "x", "t"]) == ([["a"], [None], [None]], [False])
    assert engine.lookup("Versions", [], 0, ["k"]) == ([[]], [])


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (Latest(of=Input(dataset="Pairs"), keys=("b", "a")), 3),
        (aggregate(spec_of(F.COUNT, into="v"), of=Input(dataset="Pairs"), keys=["b", "a"]), 1),
    ],
)
def test_keys_are_in_the_order_of_the_dataset(operator: Operator, expected: int) -> None:
    source = dataset("Pairs", {"a": STRING, "b": STRING, "v": INT, "t": DATETIME})
    fields: dict[str, DataType] = {"a": STRING, "b": STRING, "v": INT, "t": DATETIME}
    engine = LocalEngine([source, dataset("Out", fields, ["a", "b"], operator, ["Pairs"])])
    engine.append("Pairs", [{"a": "1", "b": "2", "v": 3, "t": 0}])
    assert engine.lookup("Out", [("1", "2"), ("2", "1")], 0, ["v"]) == ([[expected, None]], [True, False])
    assert engine.rows("Out") == [{"a": "1", "b": "2", "v": expected, "t": 0}]


def test_defaults_of_a_terminal_aggregate_stand_for_keys_never_seen() -> None:
    specs = [
        spec_of(F.AVERAGE, "x", into="average", default=0.5),
        spec_of(F.MIN, "x", into="min", default=-7),
        spec_of(F.MAX, "x", into="max"),
        spec_of(F.STDDEV, "x", into="stddev", default=-1.0),
        spec_of(F.QUANTILE, "x", into="quantile", default=2.5, p=0.5),
        spec_of(F.COUNT, into="count"),
        spec_of(F.SUM, "x", into="sum"),
        spec_of(F.LAST_K, "x", into="list", limit=1),
        spec_of(F.EXP_DECAY_SUM, "x", into="decayed", half_life_us=S),
    ]
    engine = engine_of(aggregate(*specs))
    names = [spec.into for spec in specs]
    unseen = [[0.5], [-7], [None], [-1.0], [2.5], [None], [None], [None], [None]]
    assert engine.lookup("Out", [("a",)], 0, names) == (unseen, [False])
    engine.append("Events", [row("a", 1, 5)])
    assert engine.lookup("Out", [("a",)], 4 * S, names) == (unseen, [False])
    assert value_at(engine, ("a",), 5, "average", "min", "count") == (1.0, 1, 1)


@pytest.mark.spec("datasets:4:1")
def test_nothing_can_be_looked_up_without_keys() -> None:
    with pytest.raises(InvalidInputError, match="dataset Events has no keys"):
        LocalEngine(SOURCES).lookup("Events", [()], 0, ["x"])


@pytest.mark.spec("datasets:4:9")
def test_wrong_lookups_name_what_is_there() -> None:
    engine = LocalEngine(SOURCES)
    with pytest.raises(InvalidInputError, match="dataset Versions has no column nope; columns: k, x, y, t"):
        engine.lookup("Versions", [("a",)], 0, ["x", "nope"])
    with pytest.raises(InvalidInputError, match="dataset Versions has the keys k"):
        engine.lookup("Versions", [("a", "b")], 0, ["x"])
    with pytest.raises(UnknownEntityError, match="unknown dataset Nope; datasets: Events, Versions, Sides"):
        engine.lookup("Nope", [("a",)], 0, ["x"])


# Data (sections 3 and 11 of the specification of datasets).


def test_identical_events_coexist_and_identical_upserts_replace() -> None:
    engine = LocalEngine(SOURCES)
    for name in ("Events", "Versions"):
        engine.append(name, [row("a", 1, 2)] * 2)
        engine.append(name, [row("a", 1, 2)])
    assert len(engine.rows("Events")) == 3
    assert len(engine.rows("Versions")) == 1


def test_a_delete_ends_a_version_and_of_one_instant_the_last_arrival_holds() -> None:
    engine = LocalEngine(SOURCES)
    engine.append("Versions", [row("a", 1, 2)])
    engine.apply_changes(
        "Versions",
        [
            SourceChange(time_us=5 * S, row={"k": "a"}, delete=True),
            SourceChange(time_us=7 * S, row=row("a", 2, 0)),
            SourceChange(time_us=7 * S, row={"k": "a"}, delete=True),
            SourceChange(time_us=9 * S, row={"k": "a"}, delete=True),
            SourceChange(time_us=9 * S, row=row("a", 3, 0)),
            SourceChange(time_us=9 * S, row={"k": "never seen"}, delete=True),
        ],
    )
    assert seconds(engine.rows("Versions"), "x") == [(1, 2), (3, 9)]
    (xs,), found = engine.lookup("Versions", [("a",)] * 4, [4 * S, 5 * S, 8 * S, 9 * S], ["x"])
    assert (xs, found) == ([1, None, None, 3], [True, False, False, True])


def test_a_delete_is_never_before_the_row_that_it_names() -> None:
    engine = LocalEngine(SOURCES)
    engine.append("Versions", [row("a", 1, 8)])
    engine.apply_changes("Versions", [SourceChange(time_us=5 * S, row=row("a", 1, 8), delete=True)])
    assert engine.rows("Versions") == []


def test_events_are_never_deleted() -> None:
    engine = LocalEngine(SOURCES)
    with pytest.raises(InvalidInputError, match="dataset Events has no keys, so that its rows can't be deleted"):
        engine.apply_changes("Events", [SourceChange(time_us=0, row=row("a", 1, 2), delete=True)])
    engine.apply_changes("Events", [SourceChange(time_us=3 * S, row=row("a", 1, 2))])
    assert engine.rows("Events") == [row("a", 1, 3)]


def test_rows_must_be_complete_and_may_have_more() -> None:
    engine = LocalEngine(SOURCES)
    with pytest.raises(InvalidInputError, match="dataset Sides: column z is missing; the row has j, t"):
        engine.append("Sides", [side("a", 1, 2), {"j": "a", "t": 0}])
    assert engine.rows("Sides") == []
    engine.append("Sides", [{**side("a", 1, 2), "extra": 1}])
    assert engine.rows("Sides") == [side("a", 1, 2)]


def test_ties_keep_the_order_of_arrival() -> None:
    engine = LocalEngine(SOURCES)
    engine.append("Events", [row("a", 1, 5), row("b", 2, 3)])
    engine.append("Events", [row("c", 3, 5), row("d", 4, 3)])
    assert [r["x"] for r in engine.rows("Events")] == [2, 4, 1, 3]


def test_what_was_logged_belongs_to_the_engine() -> None:
    engine = LocalEngine(SOURCES)
    mine = row("a", 1, 2)
    engine.append("Events", [mine])
    mine["x"] = 9
    engine.rows("Events")[0]["x"] = 9
    assert engine.rows("Events") == [row("a", 1, 2)]


PIPELINES: list[Operator] = [
    Filter(of=versions, predicate=compared("x", BinaryOp.GT, 1)),
    aggregate(
        spec_of(F.SUM, "x", last(5)), spec_of(F.LAST_K, "x", FOREVER, into="l", limit=3), of=versions, keys=["y"]
    ),
    Join(
        left=versions,
        right="Sides",
        how=JoinKind.LEFT,
        left_on=("k",),
        right_on=("j",),
        within_low_us=None,
        within_high_us=0,
        fields=("z",),
    ),
    Union(left=events, right=Filter(of=events, predicate=compared("x", BinaryOp.GT, 1))),
    LATEST,
    JOINED,
    *(
        aggregate(spec_of(F.COUNT, None, window, into="n"))
        for window in (hopping(5, 2), hopping(10, 5, 6), hopping(None, 4))
    ),
    aggregate(spec_of(F.COUNT, None, None, into="n"), window=hopping(5, 5)),
]


@given(
    st.sampled_from(PIPELINES),
    st.lists(
        st.tuples(
            st.sampled_from(["Events", "Versions", "Sides"]),
            st.sampled_from("ab"),
            st.integers(0, 3),
            st.integers(0, 20),
        ),
        max_size=10,
        # Times are distinct, since rows of one instant keep their order of arrival.
        unique_by=lambda logged: logged[3],
    ),
    st.randoms(),
)
def test_late_and_early_rows_in_any_batches_give_one_result(
    operator: Operator, logged: list[tuple[str, str, int, int]], rng: Any
) -> None:
    def make(name: str, key: str, value: int, at: int) -> dict[str, Any]:
        return side(key, value, at) if name == "Sides" else row(key, value, at)

    engine, other = engine_of(operator), engine_of(operator)
    for entry in sorted(logged, key=lambda logged: logged[3]):
        engine.append(entry[0], [make(*entry)])
    shuffled = list(logged)
    rng.shuffle(shuffled)
    while shuffled:
        name = shuffled[0][0]
        size = rng.randint(1, len(shuffled))
        other.append(name, [make(*entry) for entry in shuffled[:size] if entry[0] == name])
        shuffled = [entry for position, entry in enumerate(shuffled) if position >= size or entry[0] != name]
    assert engine.rows("Out") == other.rows("Out")


ROWS = st.builds(row, st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 9))


# Times are distinct, since a row that arrives again is the newest of its instant.
@given(st.lists(ROWS, max_size=6, unique_by=lambda r: r["t"]))
def test_logging_upserts_again_changes_nothing(rows: Logged) -> None:
    engine = engine_of(PIPELINES[1], Versions=rows)
    before = engine.rows("Out")
    engine.append("Versions", rows)
    assert engine.rows("Out") == before


# Derived datasets.

TWO_STEPS = chain(
    ("Positive", Filter(of=events, predicate=compared("x", BinaryOp.GT, 0))),
    ("Newest", Latest(of=Input(dataset="Positive"), keys=("k",))),
)


def test_derived_content_can_be_put_until_the_upstream_changes() -> None:
    engine = LocalEngine(TWO_STEPS)
    engine.append("Events", [row("a", 1, 2)])
    engine.put_derived("Positive", [row("b", 7, 5), row("b", -1, 4)])
    assert seconds(engine.rows("Positive"), "x") == [(-1, 4), (7, 5)]
    assert seconds(engine.rows("Newest"), "k", "x") == [("b", -1, 4), ("b", 7, 5)]
    # Rows of other datasets, or no rows, don't recompute the dataset.
    engine.append("Versions", [row("a", 1, 2)])
    engine.append("Events", [])
    assert seconds(engine.rows("Positive"), "x") == [(-1, 4), (7, 5)]
    engine.append("Events", [row("a", 2, 3)])
    assert seconds(engine.rows("Newest"), "k", "x") == [("a", 1, 2), ("a", 2, 3)]
    engine.put_derived("Newest", [])
    assert engine.rows("Newest") == []


def test_an_aggregates_content_can_be_put() -> None:
    engine = engine_of(aggregate(spec_of(F.AVERAGE, "x", into="m", default=3.5)), Events=[row("a", 1, 2)])
    engine.put_derived("Out", [{"k": "a", "m": 9.0, "t": 5 * S}])
    assert value_at(engine, ("a",), 4, "m") is None
    assert value_at(engine, ("a",), 6, "m") == (9.0,)
    assert engine.lookup("Out", [("z",)], 0, ["m"]) == ([[3.5]], [False])


def test_what_is_derived_is_not_logged_to_and_the_other_way_round() -> None:
    engine = LocalEngine(TWO_STEPS)
    with pytest.raises(InvalidInputError, match="dataset Positive is derived by pipeline made"):
        engine.append("Positive", [row("a", 1, 2)])
    with pytest.raises(InvalidInputError, match="dataset Positive is derived by pipeline made"):
        engine.apply_changes("Positive", [])
    with pytest.raises(InvalidInputError, match="dataset Events has no pipeline"):
        engine.put_derived("Events", [])


def test_a_dataset_without_pipeline_and_rows_is_empty() -> None:
    engine = LocalEngine(SOURCES)
    assert engine.rows("Versions") == []
    with pytest.raises(UnknownEntityError, match="unknown dataset Nope"):
        engine.rows("Nope")


def test_an_input_that_is_not_there_is_named() -> None:
    with pytest.raises(DefinitionError, match="Events"):
        LocalEngine([derived(LATEST)])


def refuse_nines(df: Any) -> Any:
    if (df["x"] == 9).any():
        raise RuntimeError("no nines")
    return df["x"]


def test_a_call_that_fails_changes_nothing_anywhere() -> None:
    failing = AssignFunction(of=events, column="n", dtype=INT, function=function(refuse_nines))
    engine = LocalEngine([*TWO_STEPS, derived(failing, "Failing")])
    engine.append("Events", [row("a", 1, 2)])
    engine.put_derived("Positive", [row("b", 7, 5)])
    with pytest.raises(InvalidInputError, match=r"dataset Failing, pipeline made: assign: .* RuntimeError: no nines"):
        engine.append("Events", [row("a", 2, 3), row("a", 9, 4)])
    assert engine.rows("Events") == [row("a", 1, 2)]
    assert engine.rows("Positive") == [row("b", 7, 5)]
    assert engine.rows("Newest") == [row("b", 7, 5)]


def test_going_over_to_other_datasets_keeps_what_is_to_be_kept() -> None:
    engine = LocalEngine(TWO_STEPS)
    engine.append("Events", [row("a", 1, 2)])
    engine.append("Versions", [row("a", 1, 2)])
    engine.append("Sides", [side("a", 1, 2)])
    more = [*TWO_STEPS, derived(JOINED, "Joined")]
    kept = [spec.name for spec in more if spec.name not in {"Versions", "Joined"}]
    engine.replace_datasets([spec for spec in more if spec.name != "Versions"], keep=kept)
    # The new dataset was computed from the rows that were kept.
    assert engine.rows("Joined") == [{**row("a", 1, 2), "z": 1}]
    assert engine.rows("Newest") == [row("a", 1, 2)]
    engine.replace_datasets(more, keep=["Sides"])
    assert engine.rows("Versions") == engine.rows("Events") == engine.rows("Newest") == []
    assert engine.rows("Sides") == [side("a", 1, 2)]


def test_what_was_put_stays_if_its_dataset_does() -> None:
    engine = LocalEngine(TWO_STEPS)
    engine.put_derived("Positive", [row("b", 7, 5)])
    engine.replace_datasets(TWO_STEPS, keep=[spec.name for spec in TWO_STEPS])
    assert engine.rows("Newest") == [row("b", 7, 5)]
    engine.replace_datasets(TWO_STEPS, keep=["Events"])
    assert engine.rows("Newest") == []


def test_what_was_put_does_not_come_back() -> None:
    engine = LocalEngine(TWO_STEPS)
    engine.put_derived("Positive", [row("b", 7, 5)])
    engine.append("Events", [row("a", 1, 2)])
    engine.replace_datasets(TWO_STEPS, keep=[spec.name for spec in TWO_STEPS])
    assert engine.rows("Positive") == [row("a", 1, 2)]


def test_a_source_that_becomes_derived_is_computed() -> None:
    fields = {field.name: field.dtype for field in TWO_STEPS[0].fields}
    source = dataset("Positive", fields)
    engine = LocalEngine([*SOURCES, source])
    engine.append("Positive", [row("b", 7, 5)])
    engine.append("Events", [row("a", 1, 2)])
    engine.replace_datasets(TWO_STEPS, keep=[spec.name for spec in TWO_STEPS])
    assert engine.rows("Positive") == [row("a", 1, 2)]


def test_datasets_that_fail_are_not_gone_over_to() -> None:
    engine = LocalEngine(SOURCES)
    engine.append("Events", [row("a", 9, 2)])
    failing = AssignFunction(of=events, column="n", dtype=INT, function=function(refuse_nines))
    with pytest.raises(InvalidInputError, match="no nines"):
        engine.replace_datasets([*SOURCES, derived(failing)], keep=["Events"])
    assert engine.rows("Events") == [row("a", 9, 2)]
    with pytest.raises(UnknownEntityError, match="unknown dataset Out"):
        engine.rows("Out")


def test_copies_go_their_own_way() -> None:
    engine = LocalEngine(TWO_STEPS)
    engine.append("Events", [row("a", 1, 2)])
    other = engine.copy()
    other.append("Events", [row("b", 1, 3)])
    other.erase("Newest", [{"k": "a"}])
    engine.append("Events", [row("c", 1, 3)])
    assert [r["k"] for r in engine.rows("Newest")] == ["a", "c"]
    assert [r["k"] for r in other.rows("Newest")] == ["b"]
    other.replace_datasets(SOURCES, keep=())
    assert [r["k"] for r in engine.rows("Newest")] == ["a", "c"]


# Erasure.


def test_erased_keys_stay_erased() -> None:
    engine = LocalEngine(SOURCES)
    engine.append("Versions", [row("a", 1, 2), row("b", 1, 2)])
    engine.erase("Versions", [{"k": "a"}, {"k": "c"}])
    engine.append("Versions", [row("a", 2, 5), row("c", 2, 5)])
    assert engine.rows("Versions") == [row("b", 1, 2)]
    assert engine.lookup("Versions", [("a",), ("b",), ("c",)], 9 * S, ["x"]) == (
        [[None, 1, None]],
        [False, True, False],
    )


def test_erasure_does_not_travel_downstream() -> None:
    engine = engine_of(aggregate(spec_of(F.COUNT, into="n"), of=versions, keys=["y"]), Versions=[row("a", 1, 2)])
    engine.erase("Versions", [{"k": "a"}])
    assert value_at(engine, (None,), 9, "n") == (1,)
    engine.erase("Versions", [{"k": "c"}])
    engine.append("Versions", [row("b", 1, 3), row("a", 1, 4), row("c", 1, 4)])
    assert value_at(engine, (None,), 9, "n") == (2,)
    engine.erase("Out", [{"y": None}])
    assert value_at(engine, (None,), 9, "n") is None
    assert engine.rows("Out") == []


def test_an_erasure_downstream_is_as_if_the_rows_had_never_come() -> None:
    counted = aggregate(spec_of(F.COUNT, into="n"), of=versions, keys=["y"])
    engine = engine_of(counted, Versions=[row("a", 1, 2), row("b", 1, 3)])
    engine.erase("Versions", [{"k": "a"}], downstream=True)
    assert value_at(engine, (None,), 9, "n") == (1,)
    engine.append("Versions", [row("a", 1, 4), row("c", 1, 4)])
    assert value_at(engine, (None,), 9, "n") == (2,)
    with pytest.raises(InvalidInputError, match="dataset Out is derived"):
        engine.erase("Out", [{"y": None}], downstream=True)


def test_erasure_of_part_of_a_key() -> None:
    pairs = dataset("Pairs", {"a": STRING, "b": STRING, "f": FLOAT, "t": DATETIME}, keys=["a", "b"])
    engine = LocalEngine([pairs])
    engine.append("Pairs", [{"a": a, "b": b, "f": 1.0, "t": 0} for a in "xy" for b in "xy"])
    engine.erase("Pairs", [{"b": "x"}])
    assert [(r["a"], r["b"]) for r in engine.rows("Pairs")] == [("x", "y"), ("y", "y")]


def test_only_keys_can_be_erased() -> None:
    engine = LocalEngine(SOURCES)
    with pytest.raises(InvalidInputError, match="dataset Versions: can't erase by x; its keys are k"):
        engine.erase("Versions", [{"x": 1}])
    with pytest.raises(InvalidInputError, match="dataset Events: can't erase by nothing; its keys are none"):
        engine.erase("Events", [{}])


def test_the_erase_list_goes_with_the_data() -> None:
    engine = LocalEngine(SOURCES)
    engine.erase("Versions", [{"k": "a"}])
    engine.erase("Sides", [{"j": "a"}])
    engine.replace_datasets(SOURCES, keep=["Versions"])
    engine.append("Versions", [row("a", 1, 2)])
    engine.append("Sides", [side("a", 1, 2)])
    assert engine.rows("Versions") == []
    assert engine.rows("Sides") == [side("a", 1, 2)]


def test_a_log_through_two_pipelines_takes_milliseconds() -> None:
    specs = chain(
        ("Positive", Filter(of=events, predicate=compared("x", BinaryOp.GE, 0))),
        ("Sums", aggregate(spec_of(F.SUM, "x", last(5)), of=Input(dataset="Positive"))),
    )
    engine = LocalEngine(specs)
    rows = [row("a", number, number) for number in range(10)]
    took = []
    for _ in range(7):
        fresh = engine.copy()
        start = time.perf_counter()
        fresh.append("Events", rows)
        took.append(time.perf_counter() - start)
    # The best of several times counts, so that other load on the machine doesn't.
    assert min(took) < scaled_now(0.005)
