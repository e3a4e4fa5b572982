from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import DATETIME, INT
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Binary, BinaryOp, Literal, Node, Ref
from caraway.graph.operators import OPERATOR_TYPES, Filter, Input, Operator
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph, PipelineSpec
from caraway.graph.wire import CommitRequest, decode_commit, decode_graph, encode_commit, encode_graph
from caraway.graph.wire.operators import decode_operator, encode_operator
from tests.effort import examples
from tests.unit.graph.random_graphs import OPERATORS, graphs, names

slow = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)


@settings(slow, max_examples=examples(80))
@given(graph=graphs)
def test_a_graph_survives_the_wire(graph: Graph) -> None:
    data = encode_graph(graph)
    assert decode_graph(data) == graph
    # The bytes are equal, so the pickles, which equality ignores, survive too.
    assert encode_graph(decode_graph(data)) == data


@settings(slow, max_examples=examples(30))
@given(graph=graphs, message=names, flags=st.tuples(st.booleans(), st.booleans(), st.booleans()), env=st.none() | names)
def test_a_commit_request_survives_the_wire(
    graph: Graph, message: str, flags: tuple[bool, bool, bool], env: str | None
) -> None:
    preview, incremental, backfill = flags
    request = CommitRequest(
        message=message, graph=graph, preview=preview, incremental=incremental, backfill=backfill, env=env
    )
    assert decode_commit(encode_commit(request)) == request


@pytest.mark.parametrize("operator_type", OPERATOR_TYPES, ids=lambda found: found.__name__)
@settings(slow, max_examples=examples(20))
@given(data=st.data())
def test_every_operator_survives_the_wire(operator_type: type, data: st.DataObject) -> None:
    operator = data.draw(OPERATORS[operator_type])
    message = encode_operator(operator)
    assert decode_operator(message) == operator
    assert encode_operator(decode_operator(message)) == message


DATASET = DatasetSpec(
    name="Clicks", version=1, history_us=1, fields=(FieldSpec(name="at", dtype=DATETIME, timestamp=True),), index=None
)


def test_deep_expressions_and_pipelines_survive() -> None:
    node: Node = Ref(name="x")
    operator: Operator = Input(dataset="A")
    for number in range(150):
        node = Binary(op=BinaryOp.ADD, left=node, right=Literal(value=number, dtype=INT))
        operator = Filter(of=operator, predicate=Ref(name="b"))
    operator = Filter(of=operator, predicate=node)
    spec = replace(DATASET, pipelines=(PipelineSpec(name="p", inputs=("A",), operator=operator),))
    assert decode_graph(encode_graph(Graph(datasets=(spec,)))).datasets == (spec,)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="graph"):
        decode_graph(data)
