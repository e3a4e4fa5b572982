"""Columns that no step and no output needs: they are left out, and nothing else changes."""

from dataclasses import replace
from typing import Any

import pytest

from caraway.compute.reference.engine import LocalEngine
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, optional
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    AssignFunction,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Filter,
    FilterFunction,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.plan.planner import plan_graph
from caraway.graph.plan.pruning import pruned
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec, Graph
from tests.effort import examples
from tests.parity.graphs import Case, case_of, oracle
from tests.unit.compute.reference.building import EVENTS, compared, dataset, derived, events, function, spec_of

WIDE = dataset("Wide", {"k": STRING, "a": INT, "b": optional(INT), "c": STRING, "d": FLOAT, "t": DATETIME})
TABLE = dataset("Table", {"j": STRING, "p": INT, "q": STRING, "r": FLOAT, "u": DATETIME}, keys=["j"])
TABLE = replace(TABLE, fields=tuple(replace(f, timestamp=f.name == "u") for f in TABLE.fields))
SPECS = {spec.name: spec for spec in (WIDE, TABLE)}
wide, table = Input(dataset="Wide"), Input(dataset="Table")


def counted(of: Operator, column: str = "a", keys: tuple[str, ...] = ("k",)) -> Aggregate:
    number = replace(spec_of(AggregateFunction.COUNT, "x", into="number"), of=column)
    return Aggregate(of=of, keys=keys, aggregates=(number,))


def joined(left: Operator, *fields: str, on: str = "k") -> Join:
    return Join(
        left=left,
        right="Table",
        how=JoinKind.LEFT,
        left_on=(on,),
        right_on=("j",),
        within_low_us=None,
        within_high_us=0,
        fields=fields,
    )


def only(of: Operator, *columns: str) -> Select:
    return Select(of=of, columns=columns)


def assigned(of: Operator, column: str, source: str, dtype: Any = INT) -> Assign:
    return Assign(of=of, columns=(AssignedColumn(name=column, dtype=dtype, expr=Ref(name=source)),))


IS_LARGE = compared("a", BinaryOp.GT, 3)
HALVED = Assign(
    of=wide,
    columns=(
        AssignedColumn(
            name="e", dtype=INT, expr=Binary(op=BinaryOp.FLOOR_DIV, left=Ref(name="a"), right=Ref(name="a"))
        ),
    ),
)
PYTHON = function(lambda frame: frame)


@pytest.mark.parametrize(
    ("whole", "less"),
    [
        # All columns of the output are columns of the input, so nothing is left out.
        (wide, wide),
        (Latest(of=wide, keys=("k",)), Latest(of=wide, keys=("k",))),
        # Columns are left out right behind an input; keys stay.
        (counted(wide), counted(only(wide, "k", "a"))),
        (counted(table, "p", ("q",)), counted(only(table, "j", "p", "q"), "p", ("q",))),
        # A column that a step reads is kept up to that step, but not in the state of later steps.
        (
            counted(Dedup(of=Filter(of=wide, predicate=IS_LARGE), by=("c",)), "d"),
            counted(
                Dedup(of=only(Filter(of=only(wide, "k", "a", "c", "d"), predicate=IS_LARGE), "k", "c", "d"), by=("c",)),
                "d",
            ),
        ),
        # A join keeps only those columns of the right side that are used later, and those of the left side that are
        # needed behind it or as its keys.
        (counted(joined(wide, "p", "q"), "p"), counted(joined(only(wide, "k"), "p"), "p")),
        (counted(joined(wide, "p", "q")), counted(joined(only(wide, "k", "a"), "p"))),
        # In a join of tables each change of a joined column begins a version, so all of these stay.
        (
            counted(joined(Latest(of=wide, keys=("c",)), "p", "q"), "p", ("c",)),
            counted(only(joined(Latest(of=only(wide, "k", "c"), keys=("c",)), "p", "q"), "c", "p"), "p", ("c",)),
        ),
        # Assigned columns that aren't used aren't computed.
        (counted(assigned(wide, "e", "d", FLOAT)), counted(only(wide, "k", "a"))),
        (counted(assigned(wide, "e", "d", FLOAT), "e"), counted(assigned(only(wide, "k", "d"), "e", "d", FLOAT), "e")),
        # A step that can fail needs the whole row for its dead letter, and runs even if its column isn't used.
        (counted(HALVED),) * 2,
        (counted(AssignFunction(of=wide, column="e", dtype=INT, function=PYTHON)),) * 2,
        (counted(FilterFunction(of=wide, function=PYTHON)),) * 2,
        (counted(Transform(of=wide, function=PYTHON)),) * 2,
        (
            counted(FilterFunction(of=wide, function=PYTHON, traced=IS_LARGE)),
            counted(FilterFunction(of=only(wide, "k", "a"), function=PYTHON, traced=IS_LARGE)),
        ),
        # Renamed columns are followed back to their names in the input.
        (
            counted(Rename(of=wide, pairs=(("a", "x"), ("c", "y"), ("x", "z"))), "z"),
            counted(Rename(of=only(wide, "k", "a"), pairs=(("a", "x"), ("x", "z"))), "z"),
        ),
        (counted(Rename(of=wide, pairs=(("d", "e"),))), counted(only(wide, "k", "a"))),
        # Steps that only remove columns disappear if these were left out already.
        (counted(Drop(of=wide, columns=("b", "c"))), counted(only(wide, "k", "a"))),
        (counted(Select(of=wide, columns=("k", "a", "b"))), counted(only(wide, "k", "a"))),
        (
            counted(Drop(of=Transform(of=wide, function=PYTHON), columns=("b",))),
            counted(Drop(of=Transform(of=wide, function=PYTHON), columns=("b",))),
        ),
        (counted(DropNull(of=wide, columns=("b",))), counted(DropNull(of=only(wide, "k", "a", "b"), columns=("b",)))),
        # Both sides of a union are narrowed to the same columns.
        (
            counted(Union(left=wide, right=Filter(of=wide, predicate=compared("a", BinaryOp.GT, 3)))),
            counted(Union(left=only(wide, "k", "a"), right=Filter(of=only(wide, "k", "a"), predicate=IS_LARGE))),
        ),
        (
            counted(Changelog(of=table, column="new", marks_inserts=True), "p", ("new",)),
            counted(Changelog(of=only(table, "j", "p"), column="new", marks_inserts=True), "p", ("new",)),
        ),
        (
            counted(First(of=wide, keys=("c",)), "a", ("c",)),
            counted(First(of=only(wide, "a", "c"), keys=("c",)), "a", ("c",)),
        ),
    ],
)
def test_what_is_left_out(whole: Operator, less: Operator) -> None:
    assert pruned(whole, SPECS) == less
    assert pruned(less, SPECS) == less


def test_a_row_has_a_column_even_if_nobody_needs_one() -> None:
    one = AssignedColumn(name="e", dtype=INT, expr=Literal(value=1, dtype=INT))
    side = Assign(of=wide, columns=(one,))
    less = Assign(of=only(wide, "k"), columns=(one,))
    assert pruned(counted(Dedup(of=side, by=("e",)), "e", ("e",)), SPECS) == counted(
        Dedup(of=only(less, "e"), by=("e",)), "e", ("e",)
    )


def test_a_job_is_named_after_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = derived(Latest(of=Dedup(of=Drop(of=events, columns=("x",)), by=("k",)), keys=("k",)), "Newest")
    graph = Graph(datasets=(EVENTS, spec))
    (less,) = plan_graph(graph).jobs
    monkeypatch.setattr("caraway.graph.plan.planner.pruned", lambda operator, _: operator)
    (whole,) = plan_graph(graph).jobs
    # The output is the same, so readers of the topic aren't affected.
    assert less.output == whole.output
    # The state of one job isn't readable for the other, so they have different ids.
    assert less.operator != whole.operator
    assert less.job_id != whole.job_id


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(40)))
def test_random_graphs_give_the_same_without(seed: int) -> None:
    case = case_of(seed)
    specs = {spec.name: spec for spec in case.datasets}
    less = Case(case.seed, tuple(_pruned(spec, specs) for spec in case.datasets), case.traces)
    for ours, theirs in zip(case.derived, less.derived, strict=True):
        operator = theirs.pipelines[0].operator
        assert schema_of(operator, specs) == schema_of(ours.pipelines[0].operator, specs)
        assert pruned(operator, specs) == operator
    expected, found = oracle(case), oracle(less)
    for spec in case.derived:
        assert _rows(found, spec) == _rows(expected, spec)


def _pruned(spec: DatasetSpec, specs: dict[str, DatasetSpec]) -> DatasetSpec:
    pipelines = tuple(replace(p, operator=pruned(p.operator, specs)) for p in spec.pipelines)
    return replace(spec, pipelines=pipelines)


def _rows(engine: LocalEngine, spec: DatasetSpec) -> list[str]:
    """Return the rows as text, in which NaN is equal to itself."""
    return [repr(row) for row in engine.rows(spec.name)]
