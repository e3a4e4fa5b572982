from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import DATETIME, INT
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Binary, BinaryOp, Literal, Node, Ref
from caraway.graph.operators import Filter, Input, Operator, Union
from caraway.graph.pb.caraway.v1 import connectors_pb2, expressions_pb2
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.pb.caraway.v1.operators_pb2 import OperatorTree
from caraway.graph.specs import Graph, PipelineSpec
from caraway.graph.wire.graphs import CommitRequest, decode_commit, decode_graph, encode_commit, encode_graph
from caraway.graph.wire.messages import from_message, to_message
from tests.effort import examples
from tests.unit.graph.building import dataset
from tests.unit.graph.random_graphs import graphs, names

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


DATASET = dataset("Clicks", {"at": DATETIME})


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


def _graph(made: pb.Dataset) -> bytes:
    return pb.Graph(datasets=[made]).SerializeToString()


def _pipeline(*operators: dict[str, Any]) -> bytes:
    return _graph(pb.Dataset(pipelines=[pb.Pipeline(operator={"nodes": operators})]))


KAFKA = {"kind": "Kafka", "name": "k", "registered": True}


def _source(**parts: Any) -> bytes:
    made = {"connector": {"system": KAFKA, "kafka": {"plain": "json"}}, "cdc": "append", **parts}
    return _graph(pb.Dataset(sources=[connectors_pb2.Source(**made)]))


def _table(system: dict[str, Any]) -> bytes:
    return _source(connector={"system": {"name": "s", **system}, "table": {"table": "t"}})


INPUT = {"input": "D"}
IN_SESSIONS: Any = {"function": "count", "default": {"null": {}}, "dtype": {"int": {}}, "window": {"session": {}}}


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        # A newer client may send these.
        (_graph(pb.Dataset(fields=[pb.Dataset.Field(name="f")])), "a data type of a kind that this version"),
        (_pipeline({}), "an operator of a kind that this version"),
        (_pipeline(INPUT, {"dedup": {"of": 0, "window": {}}}), "a window of a kind that this version"),
        (_pipeline(INPUT, {"join": {"how": "outer"}}), "'outer' is not a valid JoinKind"),
        (_source(cdc="later"), "'later' is not a valid Cdc"),
        (_source(connector={}), "a connector of a kind that this version"),
        (_source(connector={"kafka": {"plain": "json"}}), "'' is no kind of system; there are Azure, BigQuery, "),
        (_source(connector={"system": KAFKA, "kafka": {"topic": "t"}}), "a format of a kind that this version"),
        (_source(preproc=[{"field": "f"}]), "of a kind that this version"),
        (_source(where={}), "a computation of a kind that this version"),
        (pb.Graph(featuresets=[{"extractors": [{}]}]).SerializeToString(), "an extractor of a kind that this version"),
        # These are damaged.
        (_pipeline(), "it has no operators"),
        (_pipeline({"drop": {"of": 0}}), "an operator refers to one that comes later"),
        (_pipeline(INPUT, {"drop": {"of": 7}}), "an operator refers to one that comes later"),
        (_pipeline(INPUT, {"union": {"left": 0, "right": 0}}), "or that another refers to"),
        (_pipeline(INPUT, INPUT), "no other refers to an operator before the last one"),
        (_pipeline(INPUT, {"filter": {"of": 0}}), "it has no nodes"),
        (
            _pipeline(INPUT, {"dedup": {"window": {"continuous": {}}}}),
            "a continuous window is that of an aggregate, never of a group",
        ),
        (
            _pipeline(INPUT, {"aggregate": {"emit": "eager", "aggregates": [IN_SESSIONS]}}),
            "a session window is that of a groupby, never of one aggregate",
        ),
        # These systems have a setting that their class lacks, lack some that it needs, or have no number for a number.
        (_table({"kind": "Mongo", "settings": {"port": {"plain": "1"}}}), "settings of another version"),
        (_table({"kind": "Mongo"}), "settings of another version"),
        (_table({"kind": "Webhook"}), "'Webhook' is no kind of system"),
        (_table({"kind": "MySQL", "settings": {"port": {"plain": "x"}}}), "invalid literal"),
        (_table({"kind": "MySQL", "settings": {"port": {"secret": {}}}}), "settings of another version"),
        (_table({"kind": "MySQL", "settings": {"port": {}}}), "a setting of a kind that this version"),
    ],
)
def test_a_graph_that_cannot_be_understood_is_refused(data: bytes, fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        decode_graph(data)


def _sum_of(terms: int) -> Node:
    found: Node = Ref(name="a")
    for _ in range(terms - 1):
        found = Binary(op=BinaryOp.ADD, left=found, right=Ref(name="a"))
    return found


def test_a_small_expression_cannot_become_a_large_tree() -> None:
    shared = to_message(_sum_of(2), expressions_pb2.Expr)
    shared.nodes[2].binary.right = 0
    for level in range(2, 60):
        shared.nodes.add().binary.CopyFrom(expressions_pb2.Node.Binary(op="+", left=level, right=level))
    with pytest.raises(InvalidInputError, match="or that another refers to"):
        from_message(shared)
    many = expressions_pb2.Expr(nodes=[expressions_pb2.Node(ref="a")] * 10_001)
    with pytest.raises(InvalidInputError, match="has 10,001 nodes, at most 10,000 are possible"):
        from_message(many)


def test_an_expression_has_as_many_levels_as_all_walks_can_take() -> None:
    assert from_message(to_message(_sum_of(200), expressions_pb2.Expr)) == _sum_of(200)
    with pytest.raises(InvalidInputError, match="more than 200 levels"):
        from_message(to_message(_sum_of(201), expressions_pb2.Expr))


def test_a_union_of_a_pipeline_with_itself_survives_the_wire() -> None:
    twice = Union(left=Input(dataset="D"), right=Input(dataset="D"))
    both = Union(left=twice, right=twice)
    assert from_message(to_message(both, OperatorTree)) == both
