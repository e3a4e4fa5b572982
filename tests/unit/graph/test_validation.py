from dataclasses import replace

import pytest

from caraway.dtypes.types import DATETIME, FLOAT, INT, optional
from caraway.errors import CommitError, CommitTypeError
from caraway.expr import col
from caraway.expr.nodes import Node
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Aggregate, Filter, Input, Latest, Operator, Rename
from caraway.graph.sources import Cdc, SourceSpec
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
from caraway.graph.validation.graphs import validate
from caraway.graph.windows import ContinuousWindow

OWNED = Metadata(owner="ana@example.com")
APPEND = SourceSpec(connector=WebhookConnector(name="web", endpoint="e", retention_us=0), disorder_us=0, cdc=Cdc.APPEND)
UPSERT = replace(APPEND, cdc=Cdc.UPSERT)
AT = FieldSpec(name="at", dtype=DATETIME, timestamp=True)
USER = FieldSpec(name="user", dtype=INT)
KEY = replace(USER, key=True)
SPENT = FieldSpec(name="spent", dtype=FLOAT)
INDEX = IndexSpec(online=True, offline=True)


def events(name: str = "Events", *sources: SourceSpec) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        version=1,
        history_us=1,
        fields=(USER, SPENT, AT),
        index=None,
        sources=sources or (APPEND,),
        metadata=OWNED,
    )


def derived(operator: Operator, *inputs: str, name: str = "Latest", env: tuple[str, ...] = ()) -> DatasetSpec:
    pipeline = PipelineSpec(name="p", inputs=inputs, operator=operator, env=env)
    return DatasetSpec(
        name=name,
        version=1,
        history_us=1,
        fields=(KEY, SPENT, AT),
        index=INDEX,
        pipelines=(pipeline,),
        metadata=OWNED,
    )


LATEST = derived(Latest(of=Input(dataset="Events"), keys=("user",)), "Events")
TOTAL = AggregateSpec(
    function=AggregateFunction.SUM,
    into="spent",
    of="spent",
    window=ContinuousWindow(length_us=None),
    default=0.0,
    dtype=FLOAT,
)
TOTALS = derived(Aggregate(of=Input(dataset="Events"), keys=("user",), aggregates=(TOTAL,)), "Events", name="Totals")


def features(*extractors: Extractor, name: str = "User", owner: Metadata = OWNED) -> FeaturesetSpec:
    return FeaturesetSpec(
        name=name,
        features=(
            FeatureSpec(name="user", dtype=INT),
            FeatureSpec(name="spent", dtype=optional(FLOAT)),
            FeatureSpec(name="double", dtype=FLOAT),
        ),
        extractors=extractors,
        metadata=owner,
    )


LOOKUP = LookupExtractor(name="l", dataset="Latest", field="spent", inputs=("User.user",), output="User.spent")


def doubling(node: Node, name: str = "e") -> ExpressionExtractor:
    return ExpressionExtractor(name=name, expr=node, inputs=("User.spent",), output="User.double")


DOUBLE = doubling((col("spent").fillnull(0.0) * 2).node)


def python(
    *inputs: str, outputs: tuple[str, ...] = ("User.double",), datasets: tuple[str, ...] = ()
) -> PythonExtractor:
    return PythonExtractor(
        name="f", inputs=inputs, outputs=outputs, datasets=datasets, version=0, source_code="", pickled=b""
    )


GOOD = Graph(datasets=(events(), LATEST, TOTALS), featuresets=(features(LOOKUP, DOUBLE),))


def test_a_sound_graph_passes() -> None:
    validate(GOOD)
    validate(Graph())


def graph(*datasets: DatasetSpec, sets: tuple[FeaturesetSpec, ...] = ()) -> Graph:
    return Graph(datasets=datasets, featuresets=sets)


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        (graph(events(), events()), CommitError, ["dataset Events", "twice"]),
        (graph(sets=(features(), features())), CommitError, ["featureset User", "twice"]),
        (graph(replace(events(), fields=(USER, USER, AT))), CommitError, ["Events", "user"]),
        # Datasets 2.6: an owner is needed at commit.
        (graph(replace(events(), metadata=Metadata())), CommitError, ["dataset Events", "owner"]),
        (graph(sets=(features(owner=Metadata()),)), CommitError, ["featureset User", "owner"]),
        (graph(replace(events(), fields=(USER,))), CommitError, ["Events", "timestamp"]),
        (graph(replace(events(), index=INDEX)), CommitError, ["Events", "no keys"]),
        # Datasets 3.3: cdc against keys.
        (graph(events("Events", UPSERT)), CommitError, ["Events", "no keys", "append"]),
        (graph(replace(LATEST, pipelines=(), sources=(APPEND,))), CommitError, ["Latest", "user", "upsert"]),
        # Datasets 5.2.
        (graph(events(), replace(LATEST, sources=(UPSERT,))), CommitError, ["Latest", "source", "pipeline p"]),
        (graph(LATEST), CommitError, ["Latest.p", "Events", "not in the commit"]),
        (
            graph(events(), replace(LATEST, pipelines=(*LATEST.pipelines, replace(LATEST.pipelines[0], name="q")))),
            CommitError,
            ["Latest", "p", "env"],
        ),
        (
            graph(
                derived(Filter(of=Input(dataset="B"), predicate=(col("spent") > 0).node), "B", name="A"),
                derived(Filter(of=Input(dataset="A"), predicate=(col("spent") > 0).node), "A", name="B"),
            ),
            CommitError,
            ["circle", "A", "B"],
        ),
        (
            graph(events(), derived(Latest(of=Input(dataset="Events"), keys=("user",)), name="Latest")),
            CommitError,
            ["Latest.p", "Events", "inputs"],
        ),
        # Datasets 5.5.
        (
            graph(events(), TOTALS, derived(Input(dataset="Totals"), "Totals")),
            CommitTypeError,
            ["Latest.p", "Totals", "continuous"],
        ),
        # Datasets 5.6.
        (
            graph(events(), derived(Rename(of=LATEST.pipelines[0].operator, pairs=(("spent", "sum"),)), "Events")),
            CommitTypeError,
            ["Latest.p", "spent", "sum", "float"],
        ),
        (
            graph(events(), derived(Latest(of=Input(dataset="Events"), keys=("nobody",)), "Events")),
            CommitError,
            ["Latest.p", "groupby", "nobody"],
        ),
        # Featuresets 2.6: one extractor a feature.
        (
            graph(sets=(features(DOUBLE, python("User.user")),)),
            CommitTypeError,
            ["User.double", "e", "f"],
        ),
        (graph(sets=(features(python(outputs=("Other.x",))),)), CommitTypeError, ["Other.x", "User"]),
        (graph(sets=(features(LOOKUP),)), CommitError, ["Latest", "not in the commit"]),
        (
            graph(events(), replace(LATEST, index=None), sets=(features(LOOKUP),)),
            CommitError,
            ["Latest", "no index"],
        ),
        (graph(sets=(features(python(datasets=("Gone",))),)), CommitError, ["f", "Gone"]),
        (
            graph(events(), LATEST, sets=(features(replace(LOOKUP, field="gone")),)),
            CommitError,
            ["Latest", "gone"],
        ),
        # Featuresets 5.1: inputs of other featuresets must be committed.
        (graph(sets=(features(python("Other.x")),)), CommitError, ["f", "Other.x", "add it"]),
        (graph(sets=(features(python("User.gone")),)), CommitError, ["f", "User.gone", "spent"]),
        # Featuresets 2.10: cycles.
        (graph(sets=(features(python("User.double")),)), CommitError, ["circle", "f"]),
        (graph(sets=(features(doubling((col("spent") * 2).node)),)), CommitTypeError, ["User.double"]),
        (graph(sets=(features(doubling((col("gone") * 2).node)),)), CommitError, ["gone"]),
    ],
)
def test_what_is_refused(wrong: Graph, error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:
        validate(wrong)
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)


def test_an_alias_may_refer_to_what_the_caller_supplies() -> None:
    validate(graph(sets=(features(AliasExtractor(name="a", input="Request.user", output="User.user")),)))


def test_a_partial_graph_may_lean_on_what_is_there_already() -> None:
    validate(graph(LATEST, sets=(features(python("Other.x")),)), partial=True)
    validate(graph(sets=(features(LOOKUP),)), partial=True)


def test_pipelines_for_different_envs_are_told_apart() -> None:
    several = replace(LATEST, pipelines=tuple(replace(LATEST.pipelines[0], name=n, env=(n,)) for n in ("a", "b")))
    validate(graph(events(), several))
    same = replace(several, pipelines=tuple(replace(p, env=("x",)) for p in several.pipelines))
    with pytest.raises(CommitError, match='a and b both run in env "x"'):
        validate(graph(events(), same))
