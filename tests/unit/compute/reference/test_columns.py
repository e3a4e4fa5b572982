import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.changes import SourceChange
from caraway.dtypes.types import DATETIME, INT, STRING, ListType, optional
from caraway.errors import InvalidInputError
from caraway.expr.nodes import BinaryOp
from caraway.graph.operators import (
    Assign,
    AssignedColumn,
    Drop,
    DropNull,
    Explode,
    Filter,
    Input,
    Operator,
    Rename,
    Select,
    Union,
)
from tests.unit.compute.reference.building import (
    EVENTS,
    S,
    compared,
    dataset,
    engine_of,
    events,
    output,
    plus,
    row,
    seconds,
    value_at,
    versions,
)

LISTS = dataset("Lists", {"a": ListType(INT), "b": ListType(optional(STRING)), "c": INT, "t": DATETIME})

ROWS = st.lists(
    st.builds(row, st.sampled_from("ab"), st.integers(-2, 2), st.integers(0, 5), st.sampled_from([None, 1.5])),
    max_size=8,
)


def test_select_keeps_keys_and_time_stamp() -> None:
    assert output(Select(of=versions, columns=("k", "y")), Versions=[row("a", 1, 2)]) == [
        {"k": "a", "y": None, "t": 2 * S}
    ]
    assert output(Select(of=events, columns=()), Events=[row("a", 1, 2)]) == [{"t": 2 * S}]


def test_drop_takes_columns_away() -> None:
    assert output(Drop(of=events, columns=("k", "y")), Events=[row("a", 1, 2)]) == [{"x": 1, "t": 2 * S}]


def test_renames_come_one_after_the_other_and_roles_stay() -> None:
    renamed = Rename(of=versions, pairs=(("x", "z"), ("k", "x"), ("t", "at")))
    engine = engine_of(renamed, Versions=[row("a", 1, 2)])
    assert engine.rows("Out") == [{"x": "a", "z": 1, "y": None, "at": 2 * S}]
    assert engine.lookup("Out", [("a",)], 2 * S, ["x", "z", "at"]) == ([["a"], [1], [2 * S]], [True])


@pytest.mark.spec("datasets:10:filter, dropnull")
@pytest.mark.parametrize(
    ("operator", "bad"),
    [
        (Filter(of=versions, predicate=compared("x", BinaryOp.GT, 0)), row("a", 0, 5, 1.0)),
        (DropNull(of=versions, columns=("y",)), row("a", 2, 5)),
    ],
)
def test_a_version_that_fails_deletes_its_key(operator: Operator, bad: dict[str, object]) -> None:
    engine = engine_of(operator, Versions=[row("a", 1, 3, 1.0), bad, row("a", 3, 7, 1.0)])
    assert seconds(engine.rows("Out"), "x") == [(1, 3), (3, 7)]
    assert [value_at(engine, ("a",), at, "x") for at in (2, 3, 4.999999, 5, 6, 7)] == [
        None,
        (1,),
        (1,),
        None,
        None,
        (3,),
    ]


@pytest.mark.spec("datasets:10:filter, dropnull")
def test_filters_keep_the_kind_of_a_keyless_input_and_the_times() -> None:
    rows = [row("a", 1, 3), row("a", -1, 4, 2.0), row("a", 1, 3)]
    assert seconds(output(Filter(of=events, predicate=compared("x", BinaryOp.GT, 0)), Events=rows), "x") == [
        (1, 3),
        (1, 3),
    ]
    assert seconds(output(DropNull(of=events, columns=("y",)), Events=rows), "y") == [(2.0, 4)]


@pytest.mark.spec("datasets:10:2")
@pytest.mark.parametrize(
    "operator",
    [
        Assign(of=versions, columns=(AssignedColumn(name="n", dtype=INT, expr=plus("x", 1)),)),
        Select(of=versions, columns=("k", "x")),
        Drop(of=versions, columns=("y",)),
        Rename(of=versions, pairs=(("y", "z"),)),
    ],
)
def test_deletes_pass_through(operator: Operator) -> None:
    engine = engine_of(operator)
    engine.append("Versions", [row("a", 1, 3)])
    engine.apply_changes("Versions", [SourceChange(time_us=5 * S, row={"k": "a"}, delete=True)])
    assert [value_at(engine, ("a",), at, "x") for at in (3, 4, 5, 6)] == [(1,), (1,), None, None]
    assert seconds(engine.rows("Out")) == [(3,)]


@pytest.mark.spec("datasets:10:explode")
def test_explode_walks_lists_in_lock_step() -> None:
    exploded = Explode(of=Input(dataset="Lists"), columns=("a", "b"))
    rows = [
        {"a": [1, 2], "b": ["x", None], "c": 7, "t": 2 * S},
        {"a": [], "b": [], "c": 8, "t": S},
    ]
    assert output(exploded, [LISTS], Lists=rows) == [
        {"a": None, "b": None, "c": 8, "t": S},
        {"a": 1, "b": "x", "c": 7, "t": 2 * S},
        {"a": 2, "b": None, "c": 7, "t": 2 * S},
    ]


def test_explode_refuses_lists_of_different_lengths() -> None:
    engine = engine_of(Explode(of=Input(dataset="Lists"), columns=("a", "b")), [LISTS])
    with pytest.raises(InvalidInputError, match=r"dataset Out, pipeline made: explode: .* a has 1, b has 2"):
        engine.append("Lists", [{"a": [1], "b": ["x", "y"], "c": 7, "t": S}])
    assert engine.rows("Lists") == []


@given(ROWS, ROWS)
def test_filter_and_assign_commute_with_union(left: list[dict[str, object]], right: list[dict[str, object]]) -> None:
    other = dataset("Others", {f.name: f.dtype for f in EVENTS.fields})
    both = Union(left=events, right=Input(dataset="Others"))

    def filtered(of: Operator) -> Operator:
        return Filter(of=of, predicate=compared("x", BinaryOp.GT, 0))

    def assigned(of: Operator) -> Operator:
        return Assign(of=of, columns=(AssignedColumn(name="n", dtype=INT, expr=plus("x", 1)),))

    for apply in (filtered, assigned):
        apart = Union(left=apply(both.left), right=apply(both.right))
        sources = (EVENTS, other)
        logged = {"Events": left, "Others": right}
        assert output(apply(both), sources, **logged) == output(apart, sources, **logged)
