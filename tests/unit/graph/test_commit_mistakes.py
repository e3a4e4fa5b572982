"""Tests of graphs that can't be committed, each with the class of its exception and the facts in the message."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, BetweenType, DataType, ListType, optional
from caraway.errors import CommitError, CommitTypeError
from caraway.expr import col, lit
from caraway.expr.nodes import Node
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.connectors import WebhookConnector
from caraway.graph.expectations import ExpectationSuite
from caraway.graph.merging import merge
from caraway.graph.operators import (
    Aggregate,
    Drop,
    Emit,
    Filter,
    Input,
    Latest,
    Operator,
    Rename,
)
from caraway.graph.sources import Cdc, Ref, SampleSpec, SinkSpec, SourceSpec
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
from caraway.graph.validation.graphs import validate, validate_placement
from caraway.graph.windows import ContinuousWindow, HoppingWindow
from caraway.lib import expect_column_pair_values_to_be_equal as expect_equal
from caraway.lib import expect_column_values_to_be_null as expect_null
from caraway.lib import expect_column_values_to_be_of_type as expect_type
from caraway.lib.expectations import suite_of

OWNED = Metadata(owner="ana@example.com")
DELETED = replace(OWNED, deleted=True)
WEB = WebhookConnector(name="web", endpoint="e", retention_us=1)
APPEND = SourceSpec(connector=WEB, cdc=Cdc.APPEND, disorder_us=0)
UPSERT = replace(APPEND, cdc=Cdc.UPSERT)
SINK = SinkSpec(connector=WEB)
AT = FieldSpec(name="at", dtype=DATETIME, timestamp=True)
USER = FieldSpec(name="user", dtype=INT)
KEY = replace(USER, key=True)
SPENT = FieldSpec(name="spent", dtype=FLOAT)
INDEX = IndexSpec(online=True, offline=True)


def dataset(name: str, *fields: FieldSpec, **parts: Any) -> DatasetSpec:
    given = {"index": None, "metadata": OWNED, **parts}
    return DatasetSpec(name=name, version=1, history_us=1, fields=fields, **given)


EVENTS = dataset("Events", USER, SPENT, AT, sources=(APPEND,))
PEOPLE = dataset("People", KEY, SPENT, AT, sources=(UPSERT,), index=INDEX)


def fed(source: SourceSpec, name: str = "Events") -> Graph:
    return graph(replace(EVENTS, name=name, sources=(source,)))


def derived(operator: Operator, *inputs: str, **parts: Any) -> DatasetSpec:
    given = {"name": "Made", "fields": (KEY, SPENT, AT), "env": (), **parts}
    name, fields, env = given.pop("name"), given.pop("fields"), given.pop("env")
    pipeline = PipelineSpec(name="p", inputs=inputs or ("Events",), operator=operator, env=env)
    return dataset(name, *fields, pipelines=(pipeline,), **{"index": INDEX, **given})


FROM_EVENTS = Input(dataset="Events")
LATEST = derived(Latest(of=FROM_EVENTS, keys=("user",)))


def total(window: Any, emit: Emit = Emit.EAGER, **parts: Any) -> DatasetSpec:
    aggregate = AggregateSpec(
        function=AggregateFunction.SUM, into="spent", of="spent", window=window, default=0.0, dtype=FLOAT
    )
    operator = Aggregate(of=FROM_EVENTS, keys=("user",), aggregates=(aggregate,), emit=emit)
    return derived(operator, **{"name": "Totals", **parts})


FOREVER = ContinuousWindow(length_us=None)
DAY = HoppingWindow(length_us=86_400_000_000, stride_us=86_400_000_000)


def two(first: tuple[str, ...], second: tuple[str, ...]) -> Graph:
    pipeline = LATEST.pipelines[0]
    pipelines = (replace(pipeline, name="one", env=first), replace(pipeline, name="two", env=second))
    return graph(EVENTS, replace(LATEST, pipelines=pipelines))


def graph(*datasets: DatasetSpec, sets: tuple[FeaturesetSpec, ...] = ()) -> Graph:
    return Graph(datasets=datasets, featuresets=sets)


def features(*extractors: Extractor, name: str = "User", **types: DataType) -> FeaturesetSpec:
    given: dict[str, DataType] = {"user": INT, "spent": optional(FLOAT), "double": FLOAT, **types}
    return FeaturesetSpec(
        name=name,
        features=tuple(FeatureSpec(name=feature, dtype=dtype) for feature, dtype in given.items()),
        extractors=extractors,
        metadata=OWNED,
    )


def with_types(featureset: FeaturesetSpec, types: dict[str, DataType]) -> FeaturesetSpec:
    return replace(
        featureset, features=tuple(replace(f, dtype=types.get(f.name, f.dtype)) for f in featureset.features)
    )


LOOKUP = LookupExtractor(name="l", dataset="People", field="spent", inputs=("User.user",), output="User.spent")
ALIAS = AliasExtractor(name="a", input="Request.spent", output="User.spent")
REQUEST = features(name="Request")


def expression(node: Node, output: str = "User.double") -> ExpressionExtractor:
    return ExpressionExtractor(name="e", expr=node, inputs=("User.spent",), output=output)


def python(
    name: str = "f", *, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = (), **parts: Any
) -> PythonExtractor:
    given = {"datasets": (), "version": 0, "source_code": "", "pickled": b"", **parts}
    return PythonExtractor(name=name, inputs=inputs, outputs=outputs, **given)


def looked_up(extractor: Extractor, **types: DataType) -> Graph:
    return graph(PEOPLE, sets=(with_types(features(extractor), types),))


def expecting(*calls: Any, base: DatasetSpec = EVENTS) -> Graph:
    others = (EVENTS,) if base.pipelines else ()
    return graph(*others, replace(base, expectations=suite_of(base.name, 0, list(calls))))


def unreadable(arguments: str) -> Graph:
    """Return a graph with a check as no client of ours sends it."""
    suite = suite_of("Events", 0, [expect_null("user")])
    checks = (replace(suite.expectations[0], arguments=arguments),)
    return graph(replace(EVENTS, expectations=replace(suite, expectations=checks)))


UNKNOWN_CHECK = replace(suite_of("Events", 0, [expect_null("user")]).expectations[0], name="expect_nothing")


def spec(*rows: str) -> Any:
    return pytest.mark.spec(*rows)


ENTITIES: list[Any] = [
    (graph(EVENTS, EVENTS), CommitError, ["dataset Events", "twice"]),
    (graph(sets=(REQUEST, REQUEST)), CommitError, ["featureset Request", "twice"]),
    (graph(dataset("Events", USER, USER, AT)), CommitError, ["Events", "two fields user"]),
    (
        graph(EVENTS, replace(LATEST, pipelines=LATEST.pipelines * 2)),
        CommitError,
        ["Made", "two pipelines p"],
    ),
    (
        graph(sets=(replace(REQUEST, features=REQUEST.features[:1] * 2),)),
        CommitError,
        ["Request", "two features user"],
    ),
    (graph(sets=(features(python(), python()),)), CommitError, ["User", "two extractors f"]),
    pytest.param(
        graph(replace(EVENTS, metadata=Metadata())),
        CommitError,
        ["dataset Events", "owner", "@meta", "__owner__"],
        marks=spec("connectors:9.2:1"),
    ),
    (graph(sets=(replace(REQUEST, metadata=Metadata()),)), CommitError, ["featureset Request", "owner"]),
    (graph(dataset("Events", USER)), CommitError, ["Events", "timestamp"]),
    (graph(dataset("Events", AT, replace(AT, name="then"))), CommitError, ["Events", "timestamp"]),
    (graph(replace(EVENTS, index=INDEX)), CommitError, ["Events", "no keys"]),
    (graph(dataset("Events", USER, replace(AT, erase_key=True))), CommitError, ["Events", "timestamp", "erase key"]),
    # Deleted entities are dropped before any other check.
    pytest.param(
        graph(replace(EVENTS, metadata=DELETED), LATEST),
        CommitError,
        ["Made.p", "Events", "deletes"],
        marks=spec("connectors:9.2:5"),
    ),
    (
        graph(replace(PEOPLE, metadata=DELETED), sets=(features(LOOKUP),)),
        CommitError,
        ["User", "People", "deletes"],
    ),
    (
        graph(
            sets=(
                replace(REQUEST, metadata=DELETED),
                features(python(inputs=("Request.user",), outputs=("User.user",))),
            )
        ),
        CommitError,
        ["Request.user", "deletes"],
    ),
]

SOURCES: list[Any] = [
    (fed(UPSERT), CommitError, ["Events", "no keys", "append", "web"]),
    (graph(replace(PEOPLE, sources=(APPEND,))), CommitError, ["People", "user", "upsert", "web"]),
    (graph(replace(PEOPLE, sources=(UPSERT, APPEND))), CommitError, ["People", "append"]),
    pytest.param(
        graph(EVENTS, replace(LATEST, sources=(UPSERT,))),
        CommitError,
        ["Made", "web", "pipeline p"],
        marks=spec("connectors:2.9:3"),
    ),
    (graph(replace(EVENTS, sinks=(SINK,))), CommitError, ["Events", "a source", "sink"]),
    pytest.param(
        graph(replace(EVENTS, sources=(), sinks=(SINK,))),
        CommitError,
        ["Events", "neither", "sink"],
        marks=spec("connectors:2.9:5"),
    ),
    (
        graph(EVENTS, replace(LATEST, sinks=(replace(SINK, renames=(("gone", "x"),)),))),
        CommitError,
        ["Made", "gone", "user, spent, at"],
    ),
    (
        graph(EVENTS, replace(LATEST, sinks=(replace(SINK, renames=(("user", "spent"),)),))),
        CommitError,
        ["Made", "two columns", "spent"],
    ),
    # The faults of a single source are in test_source_checks.
    (
        fed(replace(APPEND, preproc=(("gone", Ref(path=("x",))),))),
        CommitError,
        ["Events", "gone", "user, spent, at"],
    ),
]

PIPELINES: list[Any] = [
    (graph(LATEST), CommitError, ["Made.p", "Events", "not in the commit"]),
    (graph(LATEST, replace(LATEST, name="Other")), CommitError, ["Made.p, Other.p", "Events"]),
    (two((), ()), CommitError, ["Made", "one", "env"]),
    (two(("a",), ()), CommitError, ["Made", "two", "env"]),
    (two(("a",), ("a",)), CommitError, ["Made", "two", '"a"']),
    (two(("a", "b"), ("b", "c")), CommitError, ["Made", "one", "two", '"b"']),
    (two(("~a",), ("b",)), CommitError, ["Made", "one", "two", '"b"']),
    (two(("~a",), ("~b",)), CommitError, ["Made", "one", "two"]),
    (
        graph(
            derived(Filter(of=Input(dataset="B"), predicate=(col("spent") > 0).node), "B", name="A"),
            derived(Filter(of=Input(dataset="A"), predicate=(col("spent") > 0).node), "A", name="B"),
        ),
        CommitError,
        ["circle", "A", "B"],
    ),
    (graph(derived(Input(dataset="Made"), "Made")), CommitError, ["circle", "Made"]),
    (
        graph(EVENTS, PEOPLE, derived(Latest(of=FROM_EVENTS, keys=("user",)), "People")),
        CommitError,
        ["Made.p", "reads Events", "People"],
    ),
    (
        graph(EVENTS, total(FOREVER), derived(Input(dataset="Totals"), "Totals")),
        CommitTypeError,
        ["Made.p", "Totals", "continuous"],
    ),
    # The rule holds however the results are emitted.
    (
        graph(EVENTS, total(FOREVER, Emit.FINAL), derived(Input(dataset="Totals"), "Totals")),
        CommitTypeError,
        ["Made.p", "Totals", "continuous"],
    ),
    (
        graph(EVENTS, derived(Latest(of=FROM_EVENTS, keys=("user",)), fields=(KEY, replace(SPENT, dtype=INT), AT))),
        CommitTypeError,
        ["Made.p", "spent", "float", "int"],
    ),
    (
        graph(EVENTS, derived(Latest(of=FROM_EVENTS, keys=("user",)), fields=(KEY, AT))),
        CommitTypeError,
        ["Made.p", "spent"],
    ),
    (
        graph(EVENTS, derived(Latest(of=FROM_EVENTS, keys=("user",)), fields=(KEY, SPENT, replace(AT, name="then")))),
        CommitTypeError,
        ["Made.p", "timestamp", "then"],
    ),
    (graph(EVENTS, derived(FROM_EVENTS)), CommitTypeError, ["Made.p", "user", "key"]),
    (
        graph(EVENTS, derived(Rename(of=LATEST.pipelines[0].operator, pairs=(("spent", "sum"),)))),
        CommitTypeError,
        ["Made.p", "spent", "sum", "float"],
    ),
    # The other faults of steps are in tests/unit/datasets/test_mistakes_of_steps.py: authoring applies the same rules.
    (graph(EVENTS, derived(Drop(of=FROM_EVENTS, columns=("gone",)))), CommitError, ["Made.p", "drop", "gone"]),
    (
        graph(EVENTS, derived(Filter(of=FROM_EVENTS, predicate=col("spent").node))),
        CommitTypeError,
        ["Made.p", "filter", "float"],
    ),
]

EXPECTATIONS: list[Any] = [
    pytest.param(
        expecting(expect_null("gone")),
        CommitError,
        ["Events", "gone", "user, spent, at"],
        marks=spec("connectors:8.1:11"),
    ),
    (expecting(expect_equal("user", "gone")), CommitError, ["Events", "gone"]),
    (expecting(expect_type("user", "colour")), CommitError, ["Events", "'colour'", "int"]),
    (
        expecting(expect_null("user", row_condition="user > 1", condition_parser="spark")),
        CommitError,
        ["Events", "'spark'", "pandas"],
    ),
    (
        graph(replace(EVENTS, expectations=ExpectationSuite(name="s", version=0, expectations=(UNKNOWN_CHECK,)))),
        CommitError,
        ["Events", "expect_nothing"],
    ),
    (unreadable("[1]"), CommitError, ["Events", "to_be_null", "'[1]' is no JSON object"]),
    (unreadable("{"), CommitError, ["Events", "to_be_null", "line 1 column 2"]),
    (expecting(expect_null("user"), base=total(FOREVER)), CommitError, ["Totals", "continuous"]),
    (
        expecting(expect_null("spent"), expect_null("user", strict=True), base=LATEST),
        CommitError,
        ["Made", "to_be_null is strict", "pipeline p", "leave out strict"],
    ),
]

FEATURESETS: list[Any] = [
    (
        graph(sets=(features(python(outputs=("User.double",)), expression(lit(1.0).node)),)),
        CommitTypeError,
        ["User.double", "e", "f", "User"],
    ),
    (graph(sets=(features(python(outputs=("User.user", "User.user"))),)), CommitTypeError, ["User.user", "f"]),
    (graph(sets=(features(python(outputs=("Other.x",))),)), CommitTypeError, ["Other.x", "User"]),
    (graph(sets=(features(LOOKUP),)), CommitError, ["People", "not in the commit", "User"]),
    (graph(replace(PEOPLE, index=None), sets=(features(LOOKUP),)), CommitError, ["People", "no index"]),
    (
        graph(replace(PEOPLE, index=IndexSpec(online=False, offline=False)), sets=(features(LOOKUP),)),
        CommitError,
        ["People", "no index"],
    ),
    (graph(sets=(features(python(datasets=("Gone",))),)), CommitError, ["extractor f", "Gone", "User"]),
    (looked_up(replace(LOOKUP, field="gone")), CommitError, ["People", "gone", "user, spent, at"]),
    (looked_up(replace(LOOKUP, inputs=())), CommitError, ["People", "user"]),
    (looked_up(LOOKUP, spent=FLOAT), CommitTypeError, ["People.spent", "User.spent", "Optional[float]"]),
    (looked_up(replace(LOOKUP, default=0.0)), CommitTypeError, ["User.spent", "float"]),
    (looked_up(replace(LOOKUP, default="x"), spent=FLOAT), CommitError, ["'x'", "float"]),
    (looked_up(replace(LOOKUP, element_wise=True)), CommitTypeError, ["User.spent", "List[Optional[float]]"]),
    (
        looked_up(replace(LOOKUP, element_wise=True), spent=ListType(optional(FLOAT))),
        CommitTypeError,
        ["User.user", "lists of keys", "int"],
    ),
    (graph(sets=(features(python(inputs=("Other.x",))),)), CommitError, ["extractor f", "Other.x", "add it"]),
    (graph(sets=(features(python(inputs=("User.gone",))),)), CommitError, ["User.gone", "spent"]),
    (graph(sets=(REQUEST, features(replace(ALIAS, input="Request.gone")))), CommitError, ["Request.gone", "spent"]),
    (
        graph(sets=(with_types(REQUEST, {"spent": INT}), features(ALIAS))),
        CommitTypeError,
        ["Request.spent", "int", "User.spent", "Optional[float]"],
    ),
    (graph(sets=(REQUEST, features(replace(ALIAS, default=1.0)))), CommitTypeError, ["Request.spent", "User.spent"]),
    (
        graph(sets=(with_types(REQUEST, {"spent": FLOAT}), features(replace(ALIAS, default=1.0), spent=FLOAT))),
        CommitTypeError,
        ["Request.spent", "default"],
    ),
    (
        graph(sets=(REQUEST, features(replace(ALIAS, default="x"), spent=FLOAT))),
        CommitError,
        ["'x'", "float", "User"],
    ),
    (
        graph(
            sets=(
                features(replace(ALIAS, default=11), spent=BetweenType(INT, 0, 10, strict_min=False, strict_max=False)),
            )
        ),
        CommitError,
        ["11", "User"],
    ),
    (graph(sets=(features(expression((col("spent") * 2).node)),)), CommitTypeError, ["User.double", "Optional[float]"]),
    (graph(sets=(features(expression((col("gone") * 2).node)),)), CommitError, ["gone", "User"]),
    (
        graph(sets=(features(python(inputs=("User.double",), outputs=("User.double",))),)),
        CommitError,
        ["circle", "User.f"],
    ),
    (
        graph(
            sets=(
                features(python("one", inputs=("Request.user",), outputs=("User.user",))),
                features(python("two", inputs=("User.user",), outputs=("Request.user",)), name="Request"),
            )
        ),
        CommitError,
        ["circle", "User.one", "Request.two"],
    ),
]


@pytest.mark.spec("featuresets:12:2")
@pytest.mark.parametrize(("wrong", "error", "facts"), [*ENTITIES, *SOURCES, *PIPELINES, *EXPECTATIONS, *FEATURESETS])
def test_a_commit_is_refused_with_the_facts(wrong: Graph, error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:
        validate(wrong)
    missing = [fact for fact in facts if fact not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.mark.spec("connectors:2.9:4")
def test_a_sink_beside_a_source_of_any_environment_is_refused() -> None:
    both = replace(LATEST, sources=(replace(UPSERT, env=("dev",)),), sinks=(replace(SINK, env=("prod",)),))
    with pytest.raises(CommitError, match="Made has a source and a sink"):
        validate_placement(graph(both), "prod")
    with pytest.raises(CommitError, match="Made has a source and a sink"):
        validate_placement(graph(both), None)
    # A sink that isn't selected, or of a deleted dataset, is no fault.
    validate_placement(graph(both), "dev")
    validate_placement(graph(replace(both, metadata=DELETED)), "prod")


@pytest.mark.spec("connectors:2.9:1", "connectors:2.9:2", "connectors:2.9:7")
@pytest.mark.parametrize(
    "sound",
    [
        graph(),
        graph(
            EVENTS,
            LATEST,
            total(FOREVER),
            PEOPLE,
            sets=(features(LOOKUP, expression((col("spent").fillnull(0.0) * 2).node)),),
        ),
        graph(replace(EVENTS, sources=(APPEND, replace(APPEND, connector=replace(WEB, endpoint="f"))))),
        graph(replace(EVENTS, sources=())),
        graph(EVENTS, replace(EVENTS, name="Twin")),
        graph(EVENTS, replace(LATEST, sinks=(replace(SINK, renames=(("user", "spent"), ("spent", "user"))),))),
        # A keyless dataset that is read as changes is accepted; updates are errors when they come.
        fed(replace(APPEND, cdc=Cdc.DEBEZIUM)),
        fed(replace(APPEND, cdc=Cdc.NATIVE)),
        two(("a",), ("b",)),
        two(("a",), ("~a",)),
        expecting(expect_null("user"), expect_type("user", "LongType")),
        graph(
            EVENTS, total(DAY), derived(Filter(of=Input(dataset="Totals"), predicate=(col("spent") > 0).node), "Totals")
        ),
        graph(PEOPLE, sets=(features(LOOKUP, user=STRING),)),
        graph(PEOPLE, sets=(features(LOOKUP, user=optional(INT)),)),
        graph(sets=(features(ALIAS),)),
        graph(replace(EVENTS, metadata=replace(DELETED, owner=""))),
    ],
)
def test_what_is_sound_passes(sound: Graph) -> None:
    validate(sound)


@pytest.mark.parametrize(
    "partial", [graph(LATEST), graph(sets=(features(LOOKUP),)), graph(sets=(features(python(inputs=("Other.x",))),))]
)
def test_a_partial_graph_may_lean_on_what_is_there_unless_it_deletes_it(partial: Graph) -> None:
    validate(partial, partial=True)
    gone = (replace(EVENTS, metadata=DELETED), replace(PEOPLE, metadata=DELETED))
    deleting = Graph(
        datasets=(*partial.datasets, *gone),
        featuresets=(*partial.featuresets, replace(REQUEST, name="Other", metadata=DELETED)),
    )
    with pytest.raises(CommitError, match="deletes"):
        validate(deleting, partial=True)


Change = Callable[[Graph], Graph]
BRANCH = graph(
    EVENTS, LATEST, PEOPLE, sets=(features(LOOKUP, expression(lit(1.0).node), python("f", outputs=("User.user",))),)
)


STRICT = suite_of("Events", 0, [expect_null("user", strict=True)])


def with_dataset(old: DatasetSpec, **changes: Any) -> Graph:
    return replace(BRANCH, datasets=tuple(replace(d, **changes) if d is old else d for d in BRANCH.datasets))


def with_extractor(number: int, **changes: Any) -> Graph:
    (found,) = BRANCH.featuresets
    extractors = tuple(replace(e, **changes) if i == number else e for i, e in enumerate(found.extractors))
    return replace(BRANCH, featuresets=(replace(found, extractors=extractors),))


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    ("given", "facts"),
    [
        pytest.param(
            with_dataset(EVENTS, version=0),
            ["'Events'", "went down from 1 to 0"],
            marks=spec("featuresets:5.1b:3"),
        ),
        (with_dataset(PEOPLE, fields=(replace(KEY, key=False), SPENT, AT)), ["'People'", "'user'", "(key)"]),
        (with_dataset(EVENTS, sources=()), ["'Events'", "source", "web", "not there"]),
        (
            with_dataset(EVENTS, sources=(replace(APPEND, sample=SampleSpec(rate=0.5)),)),
            ["'Events'", "sample", "not set"],
        ),
        (with_dataset(EVENTS, expectations=STRICT), ["'Events'", "strict", "was none", "to_be_null", '"user"']),
        (with_dataset(LATEST, pipelines=()), ["'Made'", "'p'", "not there"]),
        (with_extractor(0, field="user"), ["'l'", "'User'", "People.spent", "People.user", "version=1"]),
        (with_extractor(0, default=0.0), ["'l'", "default", "None", "0.0"]),
        (with_extractor(0, version=-1), ["'l'", "went down"]),
        (with_extractor(1, expr=lit(2.0).node), ["'e'", "expression", "1.0", "2.0"]),
        (with_extractor(2, source_code="return 1"), ["'f'", "'User'", "return 1", "@extractor(version=1)"]),
        (with_extractor(2, inputs=("User.spent",)), ["'f'", "inputs", "User.spent"]),
        (with_extractor(2, datasets=("People",)), ["'f'", "deps", "People"]),
    ],
)
def test_a_changed_definition_needs_a_greater_version(given: Graph, facts: list[str], *, incremental: bool) -> None:
    with pytest.raises(CommitError) as caught:
        merge(BRANCH, given, incremental=incremental)
    missing = [fact for fact in facts if fact not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.mark.spec("connectors:9.2:1", "connectors:9.2:2", "connectors:9.2:3", "connectors:9.2:4")
@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        with_dataset(EVENTS, metadata=Metadata(owner="b@c.de", description="d", tags=("t",), deprecated=True)),
        with_dataset(EVENTS, expectations=suite_of("Events", 1, [expect_null("user")])),
        with_dataset(EVENTS, sources=(replace(APPEND, every_us=5, env=("prod",)),)),
        with_dataset(PEOPLE, index=None),
        with_dataset(EVENTS, version=2, fields=(AT,)),
        with_dataset(LATEST, pipelines=(replace(LATEST.pipelines[0], source_code="# another layout"),)),
        with_extractor(2, pickled=b"other", metadata=Metadata(description="d"), env=("prod",)),
        with_extractor(2, version=1, source_code="return 1"),
        with_extractor(0, version=1, default=0.0),
    ],
)
def test_what_may_change(given: Graph, *, incremental: bool) -> None:
    assert merge(BRANCH, given, incremental=incremental) == given
