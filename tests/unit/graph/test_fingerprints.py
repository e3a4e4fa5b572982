import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings

from caraway.dtypes.types import BOOL, DATETIME, INT, STRING
from caraway.expr import col
from caraway.graph.connectors import KafkaConnector, WebhookConnector
from caraway.graph.fingerprints import (
    dataset_fingerprint,
    extractor_fingerprint,
    graph_fingerprint,
    pipeline_fingerprint,
    source_fingerprint,
)
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import Filter, FilterFunction, Input
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import (
    DatasetSpec,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
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
from tests.unit.graph.building import dataset
from tests.unit.graph.random_graphs import datasets, extractors, featuresets, metadata
from tests.unit.graph.samples import altered, sample

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
CLICKS = dataset("Clicks", {"user": INT, "good": BOOL, "at": DATETIME}, keys=["user"], history_us=1)
DATASET = replace(CLICKS, index=IndexSpec(online=True, offline=True), sources=(WEB, KAFKA))
ABOVE = PipelineSpec(name="p", inputs=("A",), operator=Filter(of=Input(dataset="A"), predicate=(col("x") > 1).node))
DERIVED = replace(DATASET, sources=(), pipelines=(ABOVE,))


def by_function(text: str, *includes: str, pickled: bytes = b"") -> DatasetSpec:
    function = PythonFunction(name="f", source_code=text, pickled=pickled, includes=includes)
    operator = FilterFunction(of=Input(dataset="A"), function=function)
    return replace(DERIVED, pipelines=(replace(ABOVE, operator=operator),))


# The fields that are no part of an identity: what a definition only says of itself, what selects it, and what is served
# or written of its rows. Expectations have a version of their own, and the layout of code doesn't count.
SILENT = re.compile(
    r"(.*\.)?(metadata|env)\..*|(index|expectations|sinks)\..*"
    r"|fields\.erase_key\.|sources\.every_us\.|pipelines\.source_code\.|pickled\."
)
FINGERPRINTS: list[tuple[type, Callable[[Any], bytes]]] = [
    (DatasetSpec, dataset_fingerprint),
    *((cls, extractor_fingerprint) for cls in get_args(Extractor)),
]


@pytest.mark.parametrize(("cls", "fingerprint"), FINGERPRINTS)
def test_each_field_is_part_of_the_identity_but_for_a_few(cls: type, fingerprint: Callable[[Any], bytes]) -> None:
    whole = sample(cls)
    counts = {path: fingerprint(other) != fingerprint(whole) for path, other in altered(whole)}
    assert counts == {path: SILENT.fullmatch(path) is None for path in counts}


MOVED = KafkaSystem(
    name="k", bootstrap_servers="b:2", security_protocol="SASL_SSL", sasl_mechanism="PLAIN", username="u"
)
BELOW = Filter(of=Input(dataset="A"), predicate=(col("x") > 2).node)
LOOKUP = LookupExtractor(name="l", dataset="D", field="f", inputs=("S.k",), output="S.x", default=1)
EXPRESSION = ExpressionExtractor(name="e", expr=(col("y") + 1).node, inputs=("S.y",), output="S.x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DATASET, replace(DATASET, index=None)),
        (DATASET, replace(DATASET, sources=(KAFKA, WEB))),
        # Connectors 2.10: the address of a system doesn't count.
        (DATASET, replace(DATASET, sources=(WEB, replace(KAFKA, connector=KafkaConnector(system=MOVED, topic="t"))))),
        (by_function("f", "g", pickled=b"1"), by_function("f", "g", pickled=b"2")),
    ],
)
def test_definitions_with_one_identity(one: DatasetSpec, other: DatasetSpec) -> None:
    assert dataset_fingerprint(one) == dataset_fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DATASET, replace(DATASET, fields=DATASET.fields[::-1])),
        (DATASET, replace(DATASET, fields=(replace(DATASET.fields[0], dtype=STRING), *DATASET.fields[1:]))),
        (DATASET, DERIVED),
        (DERIVED, replace(DERIVED, pipelines=(replace(ABOVE, operator=BELOW),))),
        (by_function("f"), by_function("g")),
        # The code of helpers counts.
        (by_function("f", "g"), by_function("f", "h")),
        (LOOKUP, replace(LOOKUP, default=None)),
        # 1 and True are equal in Python, but a feature shows them differently.
        (LOOKUP, replace(LOOKUP, default=True)),
        (EXPRESSION, replace(EXPRESSION, expr=(col("y") + 2).node)),
    ],
)
def test_definitions_with_two_identities(one: DatasetSpec | Extractor, other: DatasetSpec | Extractor) -> None:
    assert dict(FINGERPRINTS)[type(one)](one) != dict(FINGERPRINTS)[type(other)](other)


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
def test_the_wire_keeps_the_identities_of_extractors(spec: FeaturesetSpec) -> None:
    (again,) = decode_graph(encode_graph(Graph(featuresets=(spec,)))).featuresets
    assert list(map(extractor_fingerprint, again.extractors)) == list(map(extractor_fingerprint, spec.extractors))


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


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    # Each process has its own seed of hashes. A change of this value would begin all topics of such a dataset anew.
    assert dataset_fingerprint(DATASET).hex() == "d6f3385440893eae8484e8b6d2afe92ac5d627f1ff00a9ff344bd3a89a6a5ea9"


def test_a_graphs_fingerprint_bears_its_scheme() -> None:
    graph = Graph(datasets=(DATASET,))
    assert graph_fingerprint(graph).startswith("graph-3:")
    described = Graph(datasets=(replace(DATASET, metadata=Metadata(description="x")),))
    assert graph_fingerprint(described) != graph_fingerprint(graph)
