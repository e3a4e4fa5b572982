"""Tests that the generator of expressions keeps its promises, on which other tests rely."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import DataType, base_type
from caraway.expr.inference import infer
from caraway.expr.nodes import NODE_TYPES, Literal, Node, Now, Ref, Var
from caraway.expr.printer import print_node
from caraway.expr.promotion import shape
from caraway.expr.references import columns_of, walk
from tests.effort import examples
from tests.unit.expr.typed_nodes import SCHEMA, TYPES, Growth, any_expression, expressions


@settings(max_examples=examples(200))
@given(data=st.data(), dtype=st.sampled_from(TYPES))
def test_random_expressions_are_of_the_type_asked_for(data: Any, dtype: DataType) -> None:
    node = data.draw(expressions(dtype))
    assert shape(base_type(infer(node, SCHEMA))) == shape(dtype)
    assert print_node(node)
    assert set(columns_of(node)) <= SCHEMA.keys()


def test_random_expressions_have_all_nodes() -> None:
    growth = Growth(draw=None, depth=1, without=frozenset())
    kinds = {kind for dtype in TYPES for kind, _ in [*growth.of_any(dtype), *growth.of_kind(dtype)]}
    assert kinds | {Ref, Literal, Now, Var} == set(NODE_TYPES)


@given(node=any_expression(depth=3, without=[kind for kind in NODE_TYPES if kind not in (Ref, Literal)]))
def test_what_is_left_out_stays_out(node: Node) -> None:
    assert all(isinstance(part, (Ref, Literal, Now)) for part in walk(node))
