import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import BOOL, DATETIME, INT, STRING
from caraway.expr import col
from caraway.graph.connectors import KafkaConnector, WebhookConnector
from caraway.graph.expectations import Expectation, ExpectationSuite
from caraway.graph.fingerprints import (
    dataset_fingerprint,
    extractor_fingerprint,
    featureset_fingerprint,
    graph_fingerprint,
    pipeline_fingerprint,
    source_fingerprint,
)
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import Filter, FilterFunction, Input
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
    FeatureSpec,
    FieldSpec,
    Graph,
    IndexSpec,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.systems import KafkaSystem
from caraway.graph.wire.graphs import decode_graph, encode_graph
from tests.effort import examples
from tests.unit.graph.random_graphs import datasets, extractors, featuresets, metadata

slow = settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

WEB = SourceSpec(
    connector=WebhookConnector(name="web", endpoint="clicks", retention_us=9), cdc=Cdc.UPSERT, disorder_us=5
)
KAFKA = SourceSpec(
    connector=KafkaConnector(
        system=KafkaSystem(name="k", bootstrap_servers="a:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN"),
        topic="t",
    ),
    cdc=Cdc.UPSERT,
    disorder_us=5,
)
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
    sources=(WEB, KAFKA),
)
ABOVE = PipelineSpec(name="p", inputs=("A",), operator=Filter(of=Input(dataset="A"), predicate=(col("x") > 1).node))
DERIVED = replace(DATASET, sources=(), pipelines=(ABOVE,))


def by_function(text: str, *includes: str, pickled: bytes = b"") -> DatasetSpec:
    function = PythonFunction(name="f", source_code=text, pickled=pickled, includes=includes)
    operator = FilterFunction(of=Input(dataset="A"), function=function)
    return replace(DERIVED, pipelines=(replace(ABOVE, operator=operator),))


@pytest.mark.parametrize(
    ("same", "as_this"),
    [
        (replace(DATASET, metadata=Metadata(owner="a@b.c", description="d", tags=("t",))), DATASET),
        (replace(DATASET, index=None), DATASET),
        (
            replace(DATASET, fields=tuple(replace(f, metadata=Metadata(description="x")) for f in DATASET.fields)),
            DATASET,
        ),
        (replace(DATASET, fields=(replace(DATASET.fields[0], erase_key=True), *DATASET.fields[1:])), DATASET),
        (replace(DATASET, sources=(KAFKA, WEB)), DATASET),
        (replace(DATASET, sources=(replace(WEB, env=("prod",)), KAFKA)), DATASET),
        # Connectors 2.10: neither the address of a system nor the interval of polling counts.
        (replace(DATASET, sources=(WEB, replace(KAFKA, every_us=9))), DATASET),
        (
            replace(
                DATASET,
                sources=(
                    WEB,
                    replace(
                        KAFKA,
                        connector=KafkaConnector(
                            system=KafkaSystem(
                                name="k",
                                bootstrap_servers="b:2",
                                security_protocol="SASL_SSL",
                                sasl_mechanism="PLAIN",
                                username="u",
                            ),
                            topic="t",
                        ),
                    ),
                ),
            ),
            DATASET,
        ),
        # Expectations have a version of their own.
        (
            replace(
                DATASET,
                expectations=ExpectationSuite(
                    name="s", version=1, expectations=(Expectation(name="e", arguments="{}"),)
                ),
            ),
            DATASET,
        ),
        (replace(DERIVED, sinks=(SinkSpec(connector=KAFKA.connector),)), DERIVED),
        (replace(DERIVED, pipelines=(replace(ABOVE, source_code="# other layout"),)), DERIVED),
        (replace(DERIVED, pipelines=(replace(ABOVE, env=("prod",), metadata=Metadata(owner="a@b.c")),)), DERIVED),
        (by_function("f", "g", pickled=b"1"), by_function("f", "g", pickled=b"2")),
    ],
)
def test_what_is_no_part_of_a_datasets_identity(same: DatasetSpec, as_this: DatasetSpec) -> None:
    assert dataset_fingerprint(same) == dataset_fingerprint(as_this)


@pytest.mark.parametrize(
    ("other", "than_this"),
    [
        (replace(DATASET, name="Other"), DATASET),
        (replace(DATASET, version=2), DATASET),
        (replace(DATASET, history_us=2), DATASET),
        (replace(DATASET, fields=DATASET.fields[::-1]), DATASET),
        (replace(DATASET, fields=(replace(DATASET.fields[0], dtype=STRING), *DATASET.fields[1:])), DATASET),
        (replace(DATASET, sources=(replace(WEB, disorder_us=6), KAFKA)), DATASET),
        (replace(DATASET, sources=(replace(WEB, cdc=Cdc.DEBEZIUM), KAFKA)), DATASET),
        (replace(DATASET, sources=(WEB,)), DATASET),
        (DERIVED, DATASET),
        (
            replace(
                DERIVED,
                pipelines=(replace(ABOVE, operator=Filter(of=Input(dataset="A"), predicate=(col("x") > 2).node)),),
            ),
            DERIVED,
        ),
        (by_function("f"), by_function("g")),
        # The code of helpers counts.
        (by_function("f", "g"), by_function("f", "h")),
    ],
)
def test_the_definition_is_a_datasets_identity(other: DatasetSpec, than_this: DatasetSpec) -> None:
    assert dataset_fingerprint(other) != dataset_fingerprint(than_this)


PYTHON = PythonExtractor(
    name="f", inputs=("S.y",), outputs=("S.x",), datasets=("D",), version=0, source_code="a", pickled=b"1"
)
LOOKUP = LookupExtractor(name="l", dataset="D", field="f", inputs=("S.k",), output="S.x", default=1)
ALIAS = AliasExtractor(name="a", input="T.y", output="S.x", default=1)
EXPRESSION = ExpressionExtractor(name="e", expr=(col("y") + 1).node, inputs=("S.y",), output="S.x")


@pytest.mark.parametrize(
    ("extractor", "change", "counts"),
    [
        (PYTHON, lambda e: replace(e, pickled=b"2"), False),
        (PYTHON, lambda e: replace(e, source_code="b"), True),
        (PYTHON, lambda e: replace(e, inputs=()), True),
        (PYTHON, lambda e: replace(e, outputs=("S.z",)), True),
        (PYTHON, lambda e: replace(e, datasets=()), True),
        (LOOKUP, lambda e: replace(e, field="g"), True),
        (LOOKUP, lambda e: replace(e, default=None), True),
        # 1 and True are equal in Python, but a feature shows them differently.
        (LOOKUP, lambda e: replace(e, default=True), True),
        (LOOKUP, lambda e: replace(e, element_wise=True), True),
        (ALIAS, lambda e: replace(e, input="T.z"), True),
        (EXPRESSION, lambda e: replace(e, expr=(col("y") + 2).node), True),
        *((e, lambda e: replace(e, env=("prod",)), False) for e in (PYTHON, LOOKUP, ALIAS, EXPRESSION)),
        *((e, lambda e: replace(e, version=3), True) for e in (PYTHON, LOOKUP, ALIAS, EXPRESSION)),
        *(
            (e, lambda e: replace(e, metadata=Metadata(tags=("t",))), False)
            for e in (PYTHON, LOOKUP, ALIAS, EXPRESSION)
        ),
    ],
)
def test_an_extractors_identity(
    extractor: Extractor, change: Callable[[Extractor], Extractor], *, counts: bool
) -> None:
    changed = change(extractor)
    assert (extractor_fingerprint(changed) != extractor_fingerprint(extractor)) is counts
    feature = FeatureSpec(name="x", dtype=INT)
    before = FeaturesetSpec(name="S", features=(feature,), extractors=(extractor,))
    assert (featureset_fingerprint(replace(before, extractors=(changed,))) != featureset_fingerprint(before)) is counts
    described = replace(feature, metadata=Metadata(description="x"))
    assert featureset_fingerprint(replace(before, features=(described,))) == featureset_fingerprint(before)
    retyped = replace(feature, dtype=STRING)
    assert featureset_fingerprint(replace(before, features=(retyped,))) != featureset_fingerprint(before)


@slow
@given(spec=datasets, other=metadata)
def test_metadata_never_counts_and_the_wire_keeps_identities(spec: DatasetSpec, other: Metadata) -> None:
    described = replace(spec, metadata=other, fields=tuple(replace(f, metadata=other) for f in spec.fields))
    assert dataset_fingerprint(described) == dataset_fingerprint(spec)
    (again,) = decode_graph(encode_graph(Graph(datasets=(spec,)))).datasets
    assert dataset_fingerprint(again) == dataset_fingerprint(spec)
    assert list(map(source_fingerprint, again.sources)) == list(map(source_fingerprint, spec.sources))
    assert list(map(pipeline_fingerprint, again.pipelines)) == list(map(pipeline_fingerprint, spec.pipelines))


@slow
@given(spec=featuresets)
def test_the_wire_keeps_the_identities_of_featuresets(spec: FeaturesetSpec) -> None:
    (again,) = decode_graph(encode_graph(Graph(featuresets=(spec,)))).featuresets
    assert featureset_fingerprint(again) == featureset_fingerprint(spec)


def what_counts(extractor: Extractor) -> bytes:
    bare = replace(extractor, metadata=Metadata(), env=())
    if isinstance(bare, PythonExtractor):
        bare = replace(bare, pickled=b"")
    return encode_graph(Graph(featuresets=(FeaturesetSpec(name="S", features=(), extractors=(bare,)),)))


@slow
@given(first=extractors, second=extractors)
def test_extractors_have_one_identity_iff_all_that_counts_is_equal(first: Extractor, second: Extractor) -> None:
    same = extractor_fingerprint(first) == extractor_fingerprint(second)
    assert same is (what_counts(first) == what_counts(second))


@slow
@given(spec=datasets, version=st.integers(0, 99))
def test_the_version_counts(spec: DatasetSpec, version: int) -> None:
    assume(version != spec.version)
    assert dataset_fingerprint(replace(spec, version=version)) != dataset_fingerprint(spec)


@pytest.mark.slow
def test_the_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "import sys; from caraway.graph.fingerprints import dataset_fingerprint as f;"
        "from caraway.graph.wire.graphs import decode_graph;"
        "print(f(decode_graph(sys.stdin.buffer.read()).datasets[0]).hex())"
    )
    sent = encode_graph(Graph(datasets=(DATASET,)))
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, input=sent).stdout
    assert other.decode().strip() == dataset_fingerprint(DATASET).hex()


def test_a_graphs_fingerprint_bears_its_scheme() -> None:
    graph = Graph(datasets=(DATASET,))
    assert graph_fingerprint(graph).startswith("graph-2:")
    described = Graph(datasets=(replace(DATASET, metadata=Metadata(description="x")),))
    assert graph_fingerprint(described) != graph_fingerprint(graph)
