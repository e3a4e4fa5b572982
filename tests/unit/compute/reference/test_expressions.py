import pytest

from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, DataType, OneOfType, optional
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Binary, BinaryOp, FillNull, Literal, Node, Ref
from caraway.graph.operators import Assign, AssignedColumn, Filter
from tests.unit.compute.reference.building import compared, engine_of, events, output, plus, row, seconds


def assign(expr: Node, dtype: DataType, name: str = "n") -> Assign:
    return Assign(of=events, columns=(AssignedColumn(name=name, dtype=dtype, expr=expr),))


def test_all_expressions_see_the_input() -> None:
    both = Assign(
        of=events,
        columns=(
            AssignedColumn(name="x", dtype=INT, expr=plus("x", 1)),
            AssignedColumn(name="n", dtype=INT, expr=plus("x", 1)),
        ),
    )
    assert seconds(output(both, Events=[row("a", 1, 2)]), "x", "n") == [(2, 2, 2)]


def test_a_constant_is_repeated() -> None:
    rows = [row("a", 1, 1), row("b", 2, 2)]
    assert seconds(output(assign(Literal(value=7, dtype=INT), INT), Events=rows), "n") == [(7, 1), (7, 2)]
    assert output(Filter(of=events, predicate=Literal(value=True, dtype=BOOL)), Events=rows) == rows
    assert output(Filter(of=events, predicate=Literal(value=False, dtype=BOOL)), Events=rows) == []


def test_declared_types_are_wider() -> None:
    for dtype in (FLOAT, optional(FLOAT)):
        found = output(assign(Ref(name="x"), dtype), Events=[row("a", 1, 2)])[0]["n"]
        assert (found, type(found)) == (1.0, float)


def test_null_counts_as_false() -> None:
    above = FillNull(
        operand=Binary(op=BinaryOp.GT, left=Ref(name="y"), right=Literal(value=1.0, dtype=FLOAT)),
        fill=Literal(value=False, dtype=BOOL),
    )
    rows = [row("a", 1, 1, 2.5), row("a", 2, 2), row("a", 3, 3, 0.5)]
    assert seconds(output(Filter(of=events, predicate=above), Events=rows), "x") == [(1, 1)]


@pytest.mark.spec("datasets:6:6")
def test_a_value_outside_of_the_declared_restriction_is_an_error() -> None:
    engine = engine_of(assign(Ref(name="k"), OneOfType(of=STRING, options=("a", "b"))), Events=[row("a", 1, 1)])
    with pytest.raises(
        InvalidInputError, match=r'dataset Out, pipeline made: assign: column n is declared .*col\("k"\), row 1: '
    ):
        engine.append("Events", [row("c", 2, 2)])
    assert [r["n"] for r in engine.rows("Out")] == ["a"]


def test_a_null_where_none_is_declared_is_an_error() -> None:
    divided = Binary(op=BinaryOp.FLOOR_DIV, left=Ref(name="x"), right=Ref(name="x"))
    engine = engine_of(assign(divided, INT), Events=[row("a", 3, 1)])
    with pytest.raises(InvalidInputError, match=r"assign: column n is declared int, but .* is null in row 1"):
        engine.append("Events", [row("c", 0, 2)])


def test_nothing_is_computed_of_nothing() -> None:
    engine = engine_of(Filter(of=events, predicate=compared("x", BinaryOp.GT, 1)))
    engine.append("Events", [])
    assert engine.rows("Out") == []
