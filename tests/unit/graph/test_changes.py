"""The changes between two graphs: no part of a definition changes in silence, and no secret is shown."""

import math
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest

from caraway.dtypes.types import INT, STRING
from caraway.graph.changes import SHOWN_CHANGES, changes
from caraway.graph.connectors import Connector, HTTPConnector, KafkaConnector, SystemConnector, WebhookConnector
from caraway.graph.drift import Drift
from caraway.graph.expectations import Expectation, ExpectationSuite
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import FilterFunction, Input
from caraway.graph.sources import Cdc, Computed, SinkSpec, SourceSpec
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    FeaturesetSpec,
    Graph,
    IndexSpec,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.systems import SYSTEMS, KafkaSystem, RegistryFormat, SchemaRegistry, SecretRef, System
from tests.unit.graph.building import dataset, featureset
from tests.unit.graph.samples import altered, members, sample

# The environments that selected a part, the layout of code, and pickles don't count.
SILENT: dict[Any, set[str]] = {
    DatasetSpec: {
        *(f"{part}.env.{how}" for part in ("sources", "sinks", "pipelines") for how in ("", "fewer")),
        "pipelines.source_code.",
    },
    FeaturesetSpec: {"extractors.env.", "extractors.env.fewer"},
}
SECRET = "never shown"
HOUR_US = 3_600_000_000


@pytest.mark.parametrize("cls", [DatasetSpec, FeaturesetSpec])
def test_every_field_of_a_definition_counts(cls: Any) -> None:
    def graph(spec: Any) -> Graph:
        return Graph(datasets=(spec,)) if cls is DatasetSpec else Graph(featuresets=(spec,))

    whole = sample(cls)
    # The samples have each part twice, while parts have different names.
    lists = {item.name: value[:1] for item in fields(cls) if isinstance(value := getattr(whole, item.name), tuple)}
    before = replace(whole, **lists)
    if cls is DatasetSpec:
        before = replace(before, metadata=replace(before.metadata, drift=sample(Drift)))
    silent = {path for path, after in altered(before) if not any(changes(graph(before), graph(after)).values())}
    assert silent == SILENT[cls]
    assert not any(changes(graph(before), graph(before)).values())


def of(connector: Any) -> Graph:
    return Graph(datasets=(with_source(connector=connector),))


@pytest.mark.parametrize("kind", SYSTEMS.values(), ids=list(SYSTEMS))
def test_every_setting_of_a_system_counts_and_no_secret_is_shown(kind: type[System]) -> None:
    cls = next(
        c for c in members(Connector) if issubclass(c, SystemConnector) and kind in members(get_type_hints(c)["system"])
    )
    connector = sample(cls)
    system = sample(kind)
    for item in fields(kind):
        if item.name == "name":
            continue
        old = getattr(system, item.name)
        secret = SecretRef in get_args(item.type) or item.name == "jdbc_params"
        new = f"{SECRET} {item.name}" if isinstance(old, str) else old + 1
        found = changes(
            of(replace(connector, system=system)), of(replace(connector, system=replace(system, **{item.name: new})))
        )
        name = f"{kind.kind} name"
        assert found["systems"].changed == (name,)
        assert found["systems"].details == {name: (f"{item.name} changed" if secret else f"{item.name} {old} → {new}",)}
        assert not found["datasets"]
        assert secret <= (SECRET not in repr(found))


SUITE = ExpectationSuite(name="suite", version=1, expectations=(Expectation(name="a", arguments="{}"),))
SOURCE = SourceSpec(
    connector=WebhookConnector(name="hook", endpoint="a", retention_us=1), cdc=Cdc.APPEND, disorder_us=1
)
DATASET = dataset(
    "Users",
    {"user": STRING, "age": INT},
    keys=["user"],
    index=IndexSpec(online=True, offline=False),
    sources=(SOURCE,),
    expectations=SUITE,
    metadata=Metadata(owner="ada"),
)
REGISTRY = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="http://a:1", token=SECRET)
TOPIC = KafkaConnector(
    system=KafkaSystem(name="bus", bootstrap_servers="a:1", security_protocol="SSL", sasl_mechanism="PLAIN"),
    topic="t",
    format=REGISTRY,
)
HOOK = sample(HTTPConnector)
OF_SOURCE, OF_SINK = f"of source {SOURCE.connector.identifier}", f"of sink {HOOK.identifier}"
OF_TOPIC = "of format of source [Kafka: bus](topic=t, format=avro)"


def with_source(**more: Any) -> DatasetSpec:
    return replace(DATASET, sources=(replace(SOURCE, **more),))


def described(**metadata: Any) -> DatasetSpec:
    return replace(DATASET, metadata=Metadata(**metadata))


def with_format(registry: SchemaRegistry) -> DatasetSpec:
    return with_source(connector=replace(TOPIC, format=registry))


def with_sink(connector: Any, **more: Any) -> DatasetSpec:
    return replace(DATASET, sinks=(SinkSpec(connector=connector, **more),))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (DATASET, with_source(every_us=HOUR_US), (f"every {OF_SOURCE} not set → 1h",)),
        (DATASET, with_source(disorder_us=2), (f"disorder {OF_SOURCE} 0.000001s → 0.000002s",)),
        (
            described(owner="ada", tags=("a",)),
            described(owner="bo", tags=("a", "b"), deprecated=True, drift=Drift(psi=0.5)),
            ("owner ada → bo", "tags a → a, b", "deprecated False → True", "drift changed"),
        ),
        (
            described(drift=Drift(psi=0.5)),
            described(drift=Drift(psi=math.inf), description="x" * 100),
            ("description changed", "psi of drift 0.5 → inf"),
        ),
        (DATASET, replace(DATASET, index=IndexSpec(online=True, offline=True)), ("offline of index False → True",)),
        (DATASET, replace(DATASET, index=None), ("index changed",)),
        (
            DATASET,
            replace(DATASET, fields=(DATASET.fields[0], replace(DATASET.fields[1], erase_key=True))),
            ("erase_key of field age False → True",),
        ),
        (
            DATASET,
            replace(DATASET, expectations=replace(SUITE, version=2, expectations=())),
            ("version of expectations 1 → 2", "expectation a there → not there"),
        ),
        (DATASET, with_sink(HOOK), (f"sink {HOOK.identifier} not there → there",)),
        (
            with_sink(HOOK),
            with_sink(replace(HOOK, limit=9, headers=(("token", SECRET),)), every_us=1, create=True),
            (
                f"limit {OF_SINK} 7 → 9",
                f"headers {OF_SINK} changed",
                f"every {OF_SINK} not set → 0.000001s",
                f"create {OF_SINK} False → True",
            ),
        ),
        (
            with_format(REGISTRY),
            with_format(replace(REGISTRY, url="http://b:1", token=f"{SECRET} 2")),
            (f"url {OF_TOPIC} http://a:1 → http://b:1", f"token {OF_TOPIC} changed"),
        ),
        (
            with_format(REGISTRY),
            with_format(replace(REGISTRY, url=f"http://me:{SECRET}@a:1")),
            (f"url {OF_TOPIC} changed",),
        ),
    ],
)
def test_the_changes_of_a_dataset_in_words(before: DatasetSpec, after: DatasetSpec, expected: tuple[str, ...]) -> None:
    found = changes(Graph(datasets=(before,)), Graph(datasets=(after,)))
    assert found["datasets"].details == {"Users": expected}
    assert SECRET not in repr(found)


def test_pickles_layout_environments_and_nan_are_no_change() -> None:
    def graph(pickled: bytes, code: str, env: str) -> Graph:
        function = PythonFunction(name="f", source_code="text", pickled=pickled)
        operator = FilterFunction(of=Input(dataset="Users"), function=function)
        pipeline = PipelineSpec(name="p", inputs=("Users",), operator=operator, env=(env,), source_code=code)
        derived = replace(DATASET, sources=(), pipelines=(pipeline,))
        read = with_source(where=Computed(by=function), env=(env,))
        extractor = replace(sample(PythonExtractor), pickled=pickled, env=(env,))
        alias = AliasExtractor(name="b", input="S.a", output="S.b", default=float("nan"))
        return Graph(datasets=(read, derived), featuresets=(featureset("S", {}, extractor, alias),))

    assert not any(changes(graph(b"1", "a", "dev"), graph(b"2", "b", "prod")).values())


def test_features_and_featuresets_and_many_changes_are_listed_up_to_a_bound() -> None:
    def graph(owner: str) -> Graph:
        made = featureset("S", {f"f{number}": INT for number in range(20)})
        owned = tuple(replace(feature, metadata=Metadata(owner=owner)) for feature in made.features)
        return Graph(featuresets=(replace(made, features=owned),))

    found = changes(graph("ada"), graph("bo"))
    details = found["featuresets"].details["S"]
    assert details[0] == "owner of feature f0 ada → bo"
    assert len(details) == SHOWN_CHANGES < 20
    assert found["features"].details["S.f7"] == ("owner ada → bo",)


def test_a_changed_pipeline_shows_its_first_line_that_differs() -> None:
    old = replace(sample(PipelineSpec), name="total", source_code="a\n  count=Count(window=Continuous('7d')),\nb")
    new = replace(old, operator=Input(dataset="Other"), source_code=old.source_code.replace("7d", "9d").upper())
    unlike = replace(new, source_code=old.source_code.replace("7d", "9d"))
    before, upper, longer = (Graph(datasets=(replace(DATASET, pipelines=(one,)),)) for one in (old, new, unlike))
    for after, shown in (
        (upper, "a → A"),
        (longer, "count=Count(window=Continuous('7d')), → count=Count(window=Continuous('9d')),"),
    ):
        assert changes(before, after)["datasets"].details == {"Users": (f"pipeline total {shown}",)}
