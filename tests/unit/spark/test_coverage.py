from caraway.expr.nodes import NODE_TYPES
from caraway.graph.operators import OPERATOR_TYPES
from caraway.plan.limits import UNSUPPORTED
from caraway.spark.expressions import compile_node
from caraway.spark.steps import compile_step


def test_every_node_has_a_column() -> None:
    assert set(NODE_TYPES) <= set(compile_node.registry)


def test_every_operator_has_a_step_or_is_refused_by_the_planner() -> None:
    assert {t for t in compile_step.registry if t is not object} | set(UNSUPPORTED) == set(OPERATOR_TYPES)
    assert not set(compile_step.registry) & set(UNSUPPORTED)
