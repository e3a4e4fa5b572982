import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import BOOL, DATETIME, INT
from caraway.errors import InvalidInputError
from caraway.expr import col
from caraway.expr.nodes import NODE_TYPES, Binary, BinaryOp, Literal, Node, Ref
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Filter, Input, Operator
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import (
    DatasetSpec,
    FeaturesetSpec,
    FeatureSpec,
    FieldSpec,
    Graph,
    IndexSpec,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.wire import (
    CommitRequest,
    dataset_fingerprint,
    decode_commit,
    decode_graph,
    encode_commit,
    encode_graph,
    featureset_fingerprint,
)
from caraway.graph.wire_expressions import _encode
from tests.unit.graph.random_graphs import graphs, names

slow = settings(suppress_health_check=[HealthCheck.too_slow])


@slow
@given(graph=graphs)
def test_a_graph_survives_the_wire(graph: Graph) -> None:
    data = encode_graph(graph)
    assert decode_graph(data) == graph
    assert encode_graph(decode_graph(data)) == data


@slow
@given(graph=graphs, message=names, flags=st.tuples(st.booleans(), st.booleans(), st.booleans()), env=st.none() | names)
def test_a_commit_request_survives_the_wire(
    graph: Graph, message: str, flags: tuple[bool, bool, bool], env: str | None
) -> None:
    preview, incremental, backfill = flags
    request = CommitRequest(
        message=message, graph=graph, preview=preview, incremental=incremental, backfill=backfill, env=env
    )
    assert decode_commit(encode_commit(request)) == request


@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_every_node_has_a_wire_form(node_type: type) -> None:
    assert _encode.dispatch(node_type) is not _encode.dispatch(object)


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


DATASET = DatasetSpec(
    name="Clicks",
    version=1,
    history_us=1,
    fields=(
        FieldSpec(name="user", dtype=INT, key=True),
        FieldSpec(name="good", dtype=BOOL),
        FieldSpec(name="at", dtype=DATETIME, timestamp=True),
    ),
    index=IndexSpec(online=True, offline=True),
    sources=(
        SourceSpec(
            connector=WebhookConnector(name="web", endpoint="clicks", retention_us=0), disorder_us=5, cdc=Cdc.UPSERT
        ),
    ),
)


def with_pipeline(text: str, minimum: int) -> DatasetSpec:
    operator = Filter(of=Input(dataset="A"), predicate=(col("x") > minimum).node)
    pipeline = PipelineSpec(name="p", inputs=("A",), operator=operator, source_code=text)
    return replace(DATASET, sources=(), pipelines=(pipeline,))


def test_metadata_index_and_layout_are_no_part_of_a_datasets_identity() -> None:
    described = tuple(replace(f, metadata=Metadata(description="x")) for f in DATASET.fields)
    same = replace(DATASET, metadata=Metadata(owner="a@b.c"), index=None, fields=described)
    assert dataset_fingerprint(same) == dataset_fingerprint(DATASET)
    assert dataset_fingerprint(with_pipeline("a", 1)) == dataset_fingerprint(with_pipeline("b", 1))


@pytest.mark.parametrize(
    "other",
    [
        replace(DATASET, name="Other"),
        replace(DATASET, version=2),
        replace(DATASET, history_us=2),
        replace(DATASET, fields=DATASET.fields[::-1]),
        replace(DATASET, sources=(replace(DATASET.sources[0], disorder_us=6),)),
        with_pipeline("", 1),
        with_pipeline("", 2),
    ],
)
def test_the_definition_is_a_datasets_identity(other: DatasetSpec) -> None:
    assert dataset_fingerprint(other) != dataset_fingerprint(DATASET)


def test_an_extractors_text_counts_and_its_pickle_does_not() -> None:
    extractor = PythonExtractor(
        name="f", inputs=(), outputs=("S.x",), datasets=(), version=0, source_code="a", pickled=b"1"
    )
    spec = FeaturesetSpec(name="S", features=(FeatureSpec(name="x", dtype=INT),), extractors=(extractor,))
    repickled = replace(spec, extractors=(replace(extractor, pickled=b"2"),))
    rewritten = replace(spec, extractors=(replace(extractor, source_code="b"),))
    assert featureset_fingerprint(repickled) == featureset_fingerprint(spec)
    assert featureset_fingerprint(rewritten) != featureset_fingerprint(spec)


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    program = "from tests.unit.graph.test_wire import DATASET, dataset_fingerprint as f; print(f(DATASET).hex())"
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    assert other == dataset_fingerprint(DATASET).hex()
