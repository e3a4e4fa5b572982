"""The generator keeps its promises, so that what is tested with it is."""

from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, DataType, ListType, base_type
from caraway.expr.inference import infer
from caraway.expr.nodes import NODE_TYPES, Literal, Node, Ref
from caraway.expr.printer import print_node
from caraway.expr.promotion import shape
from caraway.expr.references import columns_of, walk
from tests.effort import examples
from tests.unit.expr.typed_nodes import SCHEMA, TYPES, any_expression, expressions
from tests.unit.expr.typed_values import POINT

KINDS: list[DataType] = [INT, INT, FLOAT, BOOL, STRING, DATETIME, POINT, ListType(POINT), ListType(STRING)]


@settings(max_examples=examples(200))
@given(data=st.data(), dtype=st.sampled_from(TYPES))
def test_random_expressions_are_of_the_type_asked_for(data: Any, dtype: DataType) -> None:
    node = data.draw(expressions(dtype))
    assert shape(base_type(infer(node, SCHEMA))) == shape(dtype)
    assert print_node(node)
    assert set(columns_of(node)) <= SCHEMA.keys()


def test_random_expressions_have_all_nodes() -> None:
    found: set[type] = set()

    # Always the same examples: chance decides nothing here.
    @settings(max_examples=450, derandomize=True, database=None, phases=[Phase.generate])
    @given(node=st.sampled_from(KINDS).flatmap(expressions))
    def collect(node: Node) -> None:
        found.update(map(type, walk(node)))

    collect()
    assert found == set(NODE_TYPES)


@given(node=any_expression(depth=3, without=[kind for kind in NODE_TYPES if kind not in (Ref, Literal)]))
def test_what_is_left_out_stays_out(node: Node) -> None:
    assert all(isinstance(part, (Ref, Literal)) or type(part).__name__ == "Now" for part in walk(node))
