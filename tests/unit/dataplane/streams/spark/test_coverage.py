from caraway.dataplane.streams.spark.expressions import compile_node
from caraway.dataplane.streams.spark.steps import compile_step
from caraway.expr.nodes import NODE_TYPES
from caraway.graph.operators import OPERATOR_TYPES


def test_every_node_has_a_column() -> None:
    assert set(NODE_TYPES) <= set(compile_node.registry)


def test_every_operator_has_a_step() -> None:
    assert {t for t in compile_step.registry if t is not object} == set(OPERATOR_TYPES)
