"""Tests that expressions survive the wire, node by node."""

import pytest
from hypothesis import given

from caraway.dtypes.types import DATE, FLOAT, INT, STRING
from caraway.errors import InvalidInputError
from caraway.expr.nodes import FromEpoch, ListFilter, Literal, Log, Node, Ref, TimeUnit, Var, When
from caraway.graph.pb.caraway.v1 import expressions_pb2 as pb
from caraway.graph.wire.messages import decode_expr, encode_expr
from tests.unit.expr.typed_nodes import any_expression
from tests.unit.expr.typed_values import POINT, values

NULL = Literal(value=None, dtype=None)


@given(node=any_expression())
def test_an_expression_survives_the_wire(node: Node) -> None:
    data = encode_expr(node).SerializeToString(deterministic=True)
    assert decode_expr(pb.Expr.FromString(data)) == node
    assert encode_expr(decode_expr(pb.Expr.FromString(data))).SerializeToString(deterministic=True) == data


@given(value=values(POINT))
def test_constants_of_all_shapes_survive(value: list[object]) -> None:
    node = Literal(value=value, dtype=POINT)
    assert decode_expr(encode_expr(node)) == node


@pytest.mark.parametrize(
    "node",
    [
        Log(operand=Ref(name="x"), base=0.0),
        Log(operand=Ref(name="x")),
        When(branches=((Ref(name="b"), NULL),), otherwise=NULL),
        When(branches=((Ref(name="b"), Literal(value=-0.0, dtype=FLOAT)),), otherwise=None),
        ListFilter(operand=Ref(name=""), variable="", predicate=Var(name="")),
        FromEpoch(operand=Literal(value=-(2**63), dtype=INT), unit=TimeUnit.MICROSECOND),
        Literal(value="", dtype=STRING),
        Literal(value=0, dtype=DATE),
    ],
)
def test_what_protobuf_takes_for_absent_survives(node: Node) -> None:
    assert decode_expr(pb.Expr.FromString(encode_expr(node).SerializeToString())) == node


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        (pb.Expr(), "no nodes"),
        (pb.Expr(nodes=[pb.Node()]), "kind"),
        (pb.Expr(nodes=[pb.Node(is_null=0)]), "later"),
        (pb.Expr(nodes=[pb.Node(ref="x"), pb.Node(unary=pb.Node.Unary(op="?", operand=0))]), "UnaryOp"),
    ],
)
def test_damage_is_told(message: pb.Expr, fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        decode_expr(message)
