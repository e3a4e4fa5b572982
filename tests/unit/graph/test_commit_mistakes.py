"""Tests of graphs that can't be committed, each with the class of its exception and the facts in the message."""

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
from tests.unit.graph.building import check_told, featureset

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
BY_USER = Latest(of=FROM_EVENTS, keys=("user",))
LATEST = derived(BY_USER)
SPENDING = (col("spent") > 0).node


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


def from_events(operator: Operator, **parts: Any) -> Graph:
    return graph(EVENTS, derived(operator, **parts))


def features(*extractors: Extractor, name: str = "User", **types: DataType) -> FeaturesetSpec:
    given = {"user": INT, "spent": optional(FLOAT), "double": FLOAT, **types}
    return featureset(name, given, *extractors, metadata=OWNED)


def with_features(*extractors: Extractor, **types: DataType) -> Graph:
    return graph(sets=(features(*extractors, name="User", **types),))


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


def refused(wrong: Graph, said: str, error: type[Exception] = CommitError, *, row: str | None = None) -> Any:
    """Return the case of a graph; `said` has the facts of the message, with dots between them."""
    marks = () if row is None else pytest.mark.spec(row)
    return pytest.param(wrong, error, said, marks=marks, id=said)


def mistyped(wrong: Graph, said: str) -> Any:
    return refused(wrong, said, CommitTypeError)


ENTITIES: list[Any] = [
    refused(graph(EVENTS, EVENTS), "dataset Events ... twice"),
    refused(graph(sets=(REQUEST, REQUEST)), "featureset Request ... twice"),
    refused(graph(dataset("Events", USER, USER, AT)), "Events ... two fields user"),
    refused(graph(EVENTS, replace(LATEST, pipelines=LATEST.pipelines * 2)), "Made ... two pipelines p"),
    refused(graph(sets=(replace(REQUEST, features=REQUEST.features[:1] * 2),)), "Request ... two features user"),
    refused(with_features(python(), python()), "User ... two extractors f"),
    refused(
        graph(replace(EVENTS, metadata=Metadata())),
        "dataset Events ... owner ... @meta ... __owner__",
        row="connectors:9.2:1",
    ),
    refused(graph(sets=(replace(REQUEST, metadata=Metadata()),)), "featureset Request ... owner"),
    refused(graph(dataset("Events", USER)), "Events ... timestamp"),
    refused(graph(dataset("Events", AT, replace(AT, name="then"))), "Events ... timestamp"),
    refused(graph(replace(EVENTS, index=INDEX)), "Events ... no keys"),
    refused(graph(dataset("Events", USER, replace(AT, erase_key=True))), "Events ... timestamp ... erase key"),
    # Deleted entities are dropped before any other check.
    refused(graph(replace(EVENTS, metadata=DELETED), LATEST), "Made.p ... Events ... deletes", row="connectors:9.2:5"),
    refused(graph(replace(PEOPLE, metadata=DELETED), sets=(features(LOOKUP),)), "User ... People ... deletes"),
    refused(
        graph(
            sets=(
                replace(REQUEST, metadata=DELETED),
                features(python(inputs=("Request.user",), outputs=("User.user",))),
            )
        ),
        "Request.user ... deletes",
    ),
]

SOURCES: list[Any] = [
    refused(fed(UPSERT), "Events ... no keys ... append ... web"),
    refused(graph(replace(PEOPLE, sources=(APPEND,))), "People ... user ... upsert ... web"),
    refused(graph(replace(PEOPLE, sources=(UPSERT, APPEND))), "People ... append"),
    refused(graph(EVENTS, replace(LATEST, sources=(UPSERT,))), "Made ... web ... pipeline p", row="connectors:2.9:3"),
    refused(graph(replace(EVENTS, sinks=(SINK,))), "Events ... a source ... sink"),
    refused(graph(replace(EVENTS, sources=(), sinks=(SINK,))), "Events ... neither ... sink", row="connectors:2.9:5"),
    refused(
        graph(EVENTS, replace(LATEST, sinks=(replace(SINK, renames=(("gone", "x"),)),))),
        "Made ... gone ... user, spent, at",
    ),
    refused(
        graph(EVENTS, replace(LATEST, sinks=(replace(SINK, renames=(("user", "spent"),)),))),
        "Made ... two columns ... spent",
    ),
    # The faults of a single source are in test_source_checks.
    refused(fed(replace(APPEND, preproc=(("gone", Ref(path=("x",))),))), "Events ... gone ... user, spent, at"),
]

PIPELINES: list[Any] = [
    refused(graph(LATEST), "Made.p ... Events ... not in the commit"),
    refused(graph(LATEST, replace(LATEST, name="Other")), "Made.p, Other.p ... Events"),
    refused(two((), ()), "Made ... one ... env"),
    refused(two(("a",), ()), "Made ... two ... env"),
    refused(two(("a",), ("a",)), 'Made ... two ... "a"'),
    refused(two(("a", "b"), ("b", "c")), 'Made ... one ... two ... "b"'),
    refused(two(("~a",), ("b",)), 'Made ... one ... two ... "b"'),
    refused(two(("~a",), ("~b",)), "Made ... one ... two"),
    refused(
        graph(
            derived(Filter(of=Input(dataset="B"), predicate=SPENDING), "B", name="A"),
            derived(Filter(of=Input(dataset="A"), predicate=SPENDING), "A", name="B"),
        ),
        "circle ... A ... B",
    ),
    refused(graph(derived(Input(dataset="Made"), "Made")), "circle ... Made"),
    refused(graph(EVENTS, PEOPLE, derived(BY_USER, "People")), "Made.p ... reads Events ... People"),
    mistyped(
        graph(EVENTS, total(FOREVER), derived(Input(dataset="Totals"), "Totals")), "Made.p ... Totals ... continuous"
    ),
    # The rule holds however the results are emitted.
    mistyped(
        graph(EVENTS, total(FOREVER, Emit.FINAL), derived(Input(dataset="Totals"), "Totals")),
        "Made.p ... Totals ... continuous",
    ),
    mistyped(from_events(BY_USER, fields=(KEY, replace(SPENT, dtype=INT), AT)), "Made.p ... spent ... float ... int"),
    mistyped(from_events(BY_USER, fields=(KEY, AT)), "Made.p ... spent"),
    mistyped(from_events(BY_USER, fields=(KEY, SPENT, replace(AT, name="then"))), "Made.p ... timestamp ... then"),
    mistyped(from_events(FROM_EVENTS), "Made.p ... user ... key"),
    mistyped(
        from_events(Rename(of=LATEST.pipelines[0].operator, pairs=(("spent", "sum"),))),
        "Made.p ... spent ... sum ... float",
    ),
    # The other faults of steps are in tests/unit/datasets/test_mistakes_of_steps.py: authoring applies the same rules.
    refused(from_events(Drop(of=FROM_EVENTS, columns=("gone",))), "Made.p ... drop ... gone"),
    mistyped(from_events(Filter(of=FROM_EVENTS, predicate=col("spent").node)), "Made.p ... filter ... float"),
]

EXPECTATIONS: list[Any] = [
    refused(expecting(expect_null("gone")), "Events ... gone ... user, spent, at", row="connectors:8.1:11"),
    refused(expecting(expect_equal("user", "gone")), "Events ... gone"),
    refused(expecting(expect_type("user", "colour")), "Events ... 'colour' ... int"),
    refused(
        expecting(expect_null("user", row_condition="user > 1", condition_parser="spark")),
        "Events ... 'spark' ... pandas",
    ),
    refused(
        graph(replace(EVENTS, expectations=ExpectationSuite(name="s", version=0, expectations=(UNKNOWN_CHECK,)))),
        "Events ... expect_nothing",
    ),
    refused(unreadable("[1]"), "Events ... to_be_null ... '[1]' is no JSON object"),
    refused(unreadable("{"), "Events ... to_be_null ... line 1 column 2"),
    refused(expecting(expect_null("user"), base=total(FOREVER)), "Totals ... continuous"),
    refused(
        expecting(expect_null("spent"), expect_null("user", strict=True), base=LATEST),
        "Made ... to_be_null is strict ... pipeline p ... leave out strict",
    ),
]

FEATURESETS: list[Any] = [
    mistyped(
        with_features(python(outputs=("User.double",)), expression(lit(1.0).node)), "User.double ... e ... f ... User"
    ),
    mistyped(with_features(python(outputs=("User.user", "User.user"))), "User.user ... f"),
    mistyped(with_features(python(outputs=("Other.x",))), "Other.x ... User"),
    refused(with_features(LOOKUP), "People ... not in the commit ... User"),
    refused(graph(replace(PEOPLE, index=None), sets=(features(LOOKUP),)), "People ... no index"),
    refused(
        graph(replace(PEOPLE, index=IndexSpec(online=False, offline=False)), sets=(features(LOOKUP),)),
        "People ... no index",
    ),
    refused(with_features(python(datasets=("Gone",))), "extractor f ... Gone ... User"),
    refused(looked_up(replace(LOOKUP, field="gone")), "People ... gone ... user, spent, at"),
    refused(looked_up(replace(LOOKUP, inputs=())), "People ... user"),
    mistyped(looked_up(LOOKUP, spent=FLOAT), "People.spent ... User.spent ... Optional[float]"),
    mistyped(looked_up(replace(LOOKUP, default=0.0)), "User.spent ... float"),
    refused(looked_up(replace(LOOKUP, default="x"), spent=FLOAT), "'x' ... float"),
    mistyped(looked_up(replace(LOOKUP, element_wise=True)), "User.spent ... List[Optional[float]]"),
    mistyped(
        looked_up(replace(LOOKUP, element_wise=True), spent=ListType(optional(FLOAT))),
        "User.user ... lists of keys ... int",
    ),
    refused(with_features(python(inputs=("Other.x",))), "extractor f ... Other.x ... add it"),
    refused(with_features(python(inputs=("User.gone",))), "User.gone ... spent"),
    refused(graph(sets=(REQUEST, features(replace(ALIAS, input="Request.gone")))), "Request.gone ... spent"),
    mistyped(
        graph(sets=(with_types(REQUEST, {"spent": INT}), features(ALIAS))),
        "Request.spent ... int ... User.spent ... Optional[float]",
    ),
    mistyped(graph(sets=(REQUEST, features(replace(ALIAS, default=1.0)))), "Request.spent ... User.spent"),
    mistyped(
        graph(sets=(with_types(REQUEST, {"spent": FLOAT}), features(replace(ALIAS, default=1.0), spent=FLOAT))),
        "Request.spent ... default",
    ),
    refused(graph(sets=(REQUEST, features(replace(ALIAS, default="x"), spent=FLOAT))), "'x' ... float ... User"),
    refused(
        with_features(replace(ALIAS, default=11), spent=BetweenType(INT, 0, 10, strict_min=False, strict_max=False)),
        "11 ... User",
    ),
    mistyped(with_features(expression((col("spent") * 2).node)), "User.double ... Optional[float]"),
    refused(with_features(expression((col("gone") * 2).node)), "gone ... User"),
    refused(with_features(python(inputs=("User.double",), outputs=("User.double",))), "circle ... User.f"),
    refused(
        graph(
            sets=(
                features(python("one", inputs=("Request.user",), outputs=("User.user",))),
                features(python("two", inputs=("User.user",), outputs=("Request.user",)), name="Request"),
            )
        ),
        "circle ... User.one ... Request.two",
    ),
]


@pytest.mark.spec("featuresets:12:2")
@pytest.mark.parametrize(("wrong", "error", "said"), [*ENTITIES, *SOURCES, *PIPELINES, *EXPECTATIONS, *FEATURESETS])
def test_a_commit_is_refused_with_the_facts(wrong: Graph, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        validate(wrong)
    check_told(caught.value, said)


@pytest.mark.spec("connectors:2.9:4")
def test_a_sink_beside_a_source_of_any_environment_is_refused() -> None:
    both = replace(LATEST, sources=(replace(UPSERT, env=("dev",)),), sinks=(replace(SINK, env=("prod",)),))
    for env in ("prod", None):
        with pytest.raises(CommitError, match="Made has a source and a sink"):
            validate_placement(graph(both), env)
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
        graph(EVENTS, total(DAY), derived(Filter(of=Input(dataset="Totals"), predicate=SPENDING), "Totals")),
        graph(PEOPLE, sets=(features(LOOKUP, user=STRING),)),
        graph(PEOPLE, sets=(features(LOOKUP, user=optional(INT)),)),
        with_features(ALIAS),
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
    ("given", "error", "said"),
    [
        refused(
            with_dataset(EVENTS, version=0), "'Events' ... from 1 to 0 ... caraway rollback", row="featuresets:5.1b:3"
        ),
        refused(with_dataset(PEOPLE, fields=(replace(KEY, key=False), SPENT, AT)), "'People' ... 'user' ... (key)"),
        refused(with_dataset(EVENTS, sources=()), "'Events' ... source ... web ... not there"),
        refused(
            with_dataset(EVENTS, sources=(replace(APPEND, sample=SampleSpec(rate=0.5)),)),
            "'Events' ... sample ... not set",
        ),
        refused(
            with_dataset(EVENTS, expectations=STRICT), "'Events' ... strict ... was none ... to_be_null ... \"user\""
        ),
        refused(with_dataset(LATEST, pipelines=()), "'Made' ... 'p' ... not there"),
        refused(with_extractor(0, field="user"), "'l' ... 'User' ... People.spent ... People.user ... version=1"),
        refused(with_extractor(0, default=0.0), "'l' ... default ... None ... 0.0"),
        refused(with_extractor(0, version=-1), "'l' ... went down ... version=1 ... caraway rollback"),
        refused(with_extractor(1, expr=lit(2.0).node), "'e' ... expression ... 1.0 ... 2.0"),
        refused(with_extractor(2, source_code="return 1"), "'f' ... 'User' ... return 1 ... @extractor(version=1)"),
        refused(with_extractor(2, inputs=("User.spent",)), "'f' ... inputs ... User.spent"),
        refused(with_extractor(2, datasets=("People",)), "'f' ... deps ... People"),
    ],
)
def test_a_changed_definition_needs_a_greater_version(
    given: Graph, error: type[Exception], said: str, *, incremental: bool
) -> None:
    with pytest.raises(error) as caught:
        merge(BRANCH, given, incremental=incremental)
    check_told(caught.value, said)


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
