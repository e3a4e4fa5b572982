"""Tests of wrong featuresets, each with the class of its exception and the facts that the message names."""

# The tests pass wrong arguments, and type checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, attr-defined, call-arg, list-item, misc, untyped-decorator"
from collections.abc import Callable
from typing import Any, Optional

import pytest

from caraway.dtypes import Embedding, between, regex
from caraway.errors import CommitTypeError, DefinitionError, DefinitionTypeError
from caraway.expr import col, lit
from caraway.featuresets import extractor, feature, featureset
from caraway.featuresets import feature as F
from caraway.graph.specs import Graph
from caraway.graph.validation.graphs import validate
from caraway.lib import expectations, inputs, outputs
from tests.unit.featuresets.pots import Pots, Shelves, Tap, Unindexed
from tests.unit.refusals import ROW, check, mistakes_of

__owner__ = "module@example.com"

mistake = mistakes_of("featuresets")


def bad(annotations: dict[str, Any], **values: Any) -> Callable[[], Any]:
    return lambda: featureset(type("Bad", (), {"__annotations__": annotations, **values}))


def function(cls: Any, ts: Any, x: Any) -> Any: ...


def of(given_inputs: Any = None, given_outputs: Any = None, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        def fresh(cls: Any, ts: Any, x: Any) -> Any: ...

        decorated: Any = fresh
        if given_inputs is not None:
            decorated = inputs(*given_inputs)(decorated)
        if given_outputs is not None:
            decorated = outputs(*given_outputs)(decorated)
        members = {"__annotations__": {"a": int, "b": int}, "fresh": extractor(**options)(decorated)}  # type: ignore[no-untyped-call]
        return featureset(type("Bad", (), members))

    return run


def expecting(*names: str) -> Callable[[], Any]:
    return lambda: featureset(
        type("Bad", (), {"__annotations__": {"a": int}, **{name: expectations(lambda cls: []) for name in names}})
    )


def doubled() -> Any:
    def compute(cls: Any, ts: Any) -> Any: ...

    members = {"__annotations__": {"pot": int, "a": int}, "a": F(Tap.pot), "compute": extractor(outputs("a")(compute))}
    made = featureset(type("Bad", (), members))
    validate(Graph(featuresets=(made.to_spec(),)))


RESERVED = ("fqn_", "dtype", "featureset_name", "featureset", "extractor", "extractors", "features")

# A falsy default is a default as well.
DEFAULTS: list[Any] = [3, 0, 0.0, "", [], False]

FEATURES: list[Any] = [
    # 2.1
    mistake(bad({"a": int}, a=3), DefinitionTypeError, "Bad|a|3"),
    mistake(bad({"a": int}, a=None), DefinitionTypeError, "Bad|a|None"),
    mistake(bad({"a": int}, a=Pots.species), DefinitionTypeError, "Bad|a|Pots.species"),
    mistake(bad({"a": int}, a=Tap.pot), DefinitionTypeError, "Bad|a|Tap.pot"),
    mistake(bad({"dtype": int, "features": int}), DefinitionError, "Bad|dtype|features"),
    *(mistake(bad({name: int}), DefinitionError, f"Bad|{name}|reserved") for name in RESERVED),
    mistake(bad({"a": object}), DefinitionTypeError, "Bad|a|object"),
    mistake(lambda: featureset(function), DefinitionTypeError, "featureset|function"),
    mistake(lambda: featureset("Bad"), DefinitionTypeError, "class|'Bad'"),
    mistake(expecting("checks"), NotImplementedError, "Bad|checks", "connectors:8.1:9"),
    mistake(expecting("checks", "others"), DefinitionError, "Bad|checks, others"),
    # 2.2
    mistake(lambda: feature(Tap.pot, Tap.maybe), DefinitionTypeError, "2"),
    *(mistake(lambda d=d: feature(default=d), DefinitionTypeError, f"needs a field|{d!r}") for d in DEFAULTS),
    mistake(lambda: feature("Tap.pot", default=3), DefinitionTypeError, "3"),
    mistake(lambda: feature(Pots, default=3), DefinitionTypeError, "3"),
    mistake(lambda: feature(col("a"), default=3), DefinitionError, "fillnull"),
    mistake(lambda: feature(col("a"), default=False), DefinitionError, "fillnull"),
    mistake(bad({"a": int}, a=F("Tap.pot")), DefinitionTypeError, "Bad.a|Tap.pot"),
    mistake(bad({"a": int}, a=F(Pots)), DefinitionTypeError, "Bad.a|Pots"),
    mistake(bad({"a": int}, a=F(Tap)), DefinitionTypeError, "Bad.a|Tap"),
    mistake(bad({"a": int}, a=F(3)), DefinitionTypeError, "Bad.a|3"),
    mistake(lambda: feature(Tap.pot, env="~"), DefinitionError, "env"),
    mistake(lambda: feature(Tap.pot, env=["a", "~b"]), DefinitionError, "env|mixes"),
    mistake(lambda: feature(Tap.pot, env=3), DefinitionTypeError, "env|3"),
    mistake(lambda: feature(Tap.pot, version="1"), DefinitionTypeError, "version|'1'"),
    mistake(lambda: feature(Tap.pot, version=True), DefinitionTypeError, "version|True"),
    mistake(lambda: feature(Tap.pot).meta(owner="nobody"), DefinitionError, "nobody|email"),
    mistake(lambda: feature(Tap.pot).meta(colour="red"), TypeError, "colour"),
    # 2.3
    mistake(
        bad({"pot": int, "a": Optional[str]}, a=F(Unindexed.species)), DefinitionError, "Bad.a|Unindexed|index", "2.3:1"
    ),
    mistake(bad({"a": Optional[str]}, a=F(Pots.species)), DefinitionError, "Bad.a|pot|Pots|Bad", "2.3:2"),
    mistake(bad({"room": str, "a": Optional[int]}, a=F(Shelves.pots)), DefinitionError, "Bad.a|shelf|Shelves"),
    mistake(bad({"pot": int, "a": str}, a=F(Pots.species)), DefinitionTypeError, "Bad.a|str|Optional[str]", "2.3:3"),
    mistake(
        bad({"pot": int, "a": Optional[int]}, a=F(Pots.species)), DefinitionTypeError, "Optional[int]|Optional[str]"
    ),
    mistake(bad({"pot": int, "a": float}, a=F(Pots.moisture)), DefinitionTypeError, "Bad.a|float|Optional[float]"),
    mistake(
        bad({"pot": int, "a": Optional[str]}, a=F(Pots.species, default="x")), DefinitionTypeError, "Bad.a|str", "2.3:4"
    ),
    mistake(bad({"pot": int, "a": int}, a=F(Pots.species, default=1)), DefinitionTypeError, "Bad.a|int|str"),
    mistake(bad({"pot": int, "a": str}, a=F(Pots.species, default=0.0)), DefinitionError, "Bad.a|0.0|str", "2.3:5"),
    mistake(bad({"pot": int, "a": float}, a=F(Pots.moisture, default=1)), DefinitionError, "Bad.a|1|float"),
    mistake(
        bad({"pot": int, "a": float}, a=F(Pots.moisture, default=float("nan"))),
        DefinitionError,
        "Bad.a|nan is null",
    ),
    mistake(bad({"pot": int, "a": int}, a=F(Pots.height, default=0.0)), DefinitionError, "Bad.a|0.0|int"),
    mistake(bad({"pot": int, "a": int}, a=F(Pots.height, default=True)), DefinitionError, "Bad.a|True|int"),
    mistake(bad({"pot": int, "a": list[str]}, a=F(Pots.tags, default=[1])), DefinitionError, "Bad.a|[1]"),
    mistake(
        bad({"pot": int, "a": Optional[str], "b": str}, a=F(Pots.species), b=F(Pots.species, default="x")),
        DefinitionError,
        "Bad.a|Bad.b",
        "2.3:6",
    ),
    # Lists of keys.
    mistake(
        bad({"pot": list[int], "a": list[str]}, a=F(Pots.species)),
        DefinitionTypeError,
        "Bad.a|lists of keys|List[Optional[str]]",
    ),
    mistake(
        bad({"pot": list[int], "a": list[Optional[str]]}, a=F(Pots.species, default="x")),
        DefinitionTypeError,
        "Bad.a|lists of keys|List[str]",
    ),
    mistake(
        bad({"pot": list[int], "a": list[str]}, a=F(Pots.species, default=["x"])), DefinitionError, "Bad.a|['x']|str"
    ),
    mistake(bad({"pot": int, "a": list[Optional[str]]}, a=F(Pots.species)), DefinitionTypeError, "Bad.a|Optional[str]"),
    mistake(
        bad({"room": list[str], "shelf": int, "a": list[Optional[int]]}, a=F(Shelves.pots)),
        DefinitionTypeError,
        "Bad.a|Optional[int]",
    ),
    # 2.4
    mistake(bad({"a": str}, a=F(Tap.pot)), DefinitionTypeError, "Bad.a|str|Tap.pot|int"),
    mistake(bad({"a": Optional[int]}, a=F(Tap.pot)), DefinitionTypeError, "Bad.a|Optional[int]|Tap.pot"),
    mistake(bad({"a": int}, a=F(Tap.maybe)), DefinitionTypeError, "Bad.a|Tap.maybe|Optional[int]"),
    mistake(bad({"a": int}, a=F(Tap.pot, default=1)), DefinitionTypeError, "Bad.a|Optional[int]"),
    mistake(bad({"a": Optional[int]}, a=F(Tap.maybe, default=1)), DefinitionTypeError, "Bad.a|Tap.maybe"),
    mistake(bad({"a": str}, a=F(Tap.maybe, default="1")), DefinitionTypeError, "Bad.a|Optional[str]"),
    # The value of an alias's default is checked when it is committed.
    mistake(lambda: bad({"a": int}, a=F(Tap.maybe, default=0.5))().to_spec(), DefinitionError, "Bad.a|0.5|int"),
    # 2.5
    mistake(bad({"a": int}, a=F(col("gone") + 1)), DefinitionError, "Bad.a|gone|features: a"),
    mistake(bad({"amount": int, "a": int}, a=F(col("amuont"))), DefinitionError, "did you mean amount?|features: a"),
    mistake(bad({"a": int}, a=F(col("Tap.pot") + 1)), DefinitionError, "Bad.a|Tap.pot"),
    mistake(bad({"x": float, "a": int}, a=F(col("x") + 1)), DefinitionTypeError, 'Bad.a|int|float|col("x")'),
    mistake(bad({"x": Optional[int], "a": int}, a=F(col("x"))), DefinitionTypeError, "Bad.a|Optional[int]"),
    mistake(bad({"x": int, "a": str}, a=F(col("x"))), DefinitionTypeError, "Bad.a|str|int"),
    mistake(bad({"x": int, "a": bool}, a=F(lit(1))), DefinitionTypeError, "Bad.a|bool|int"),
    mistake(bad({"x": str, "a": between(int, 0, 9)}, a=F(col("x"))), DefinitionTypeError, "Bad.a|str"),
    mistake(bad({"x": int, "a": regex("a")}, a=F(col("x"))), DefinitionTypeError, "Bad.a|int"),
    mistake(bad({"x": Embedding[3], "a": Embedding[4]}, a=F(col("x"))), DefinitionTypeError, "Bad.a|Embedding[4]"),
    mistake(bad({"x": dict[str, int], "a": dict[str, str]}, a=F(col("x"))), DefinitionTypeError, "Bad.a|Dict"),
    mistake(bad({"x": int, "a": int}, a=F(col("x").astype(int))), DefinitionTypeError, "Bad.a|astype"),
]

EXTRACTORS: list[Any] = [
    mistake(lambda: extractor(lambda self, ts: ts), DefinitionTypeError, "cls|self"),
    mistake(lambda: extractor(lambda: 0), DefinitionTypeError, "cls|nothing"),
    mistake(lambda: extractor(lambda cls: cls), DefinitionTypeError, "ts|nothing"),
    mistake(lambda: extractor(lambda cls, time: time), DefinitionTypeError, "ts|time"),
    mistake(lambda: extractor(3), DefinitionTypeError, "int 3|function"),  # type: ignore[call-overload]
    mistake(lambda: extractor(classmethod(function)), DefinitionTypeError, "classmethod"),  # type: ignore[call-overload]
    mistake(lambda: extractor(deps=[], depends_on=[]), DefinitionError, "deps|depends_on", "2.6:1"),
    mistake(lambda: extractor(deps=(Pots,))(function), DefinitionTypeError, "function|list"),  # type: ignore[call-overload]
    mistake(lambda: extractor(deps=Pots)(function), DefinitionTypeError, "function|list"),  # type: ignore[call-overload]
    mistake(lambda: extractor(depends_on=["Pots"])(function), DefinitionTypeError, "function|'Pots'"),
    mistake(lambda: extractor(deps=[Tap])(function), DefinitionTypeError, "function|Tap"),
    mistake(lambda: extractor(deps=[Unindexed])(function), DefinitionError, "function|Unindexed|index"),
    mistake(
        lambda: extractor(version=None)(function),  # type: ignore[call-overload]
        DefinitionTypeError,
        "function|None",
        "2.6:2",
    ),
    mistake(lambda: extractor(version="1")(function), DefinitionTypeError, "function|'1'"),  # type: ignore[call-overload]
    mistake(lambda: extractor(version=1.0)(function), DefinitionTypeError, "function|1.0"),  # type: ignore[call-overload]
    mistake(lambda: extractor(version=True)(function), DefinitionTypeError, "function|True"),
    mistake(of(env="a b"), DefinitionError, "fresh|a b", "2.6:3"),
    mistake(of(env=""), DefinitionError, "fresh|env"),
    mistake(of(env=[3]), DefinitionTypeError, "fresh|[3]"),
    mistake(lambda: inputs(), DefinitionError, "@inputs"),
    mistake(lambda: outputs(), DefinitionError, "@outputs"),
    mistake(of(["gone"]), DefinitionError, "Bad.fresh|gone|a, b"),
    mistake(of(["aa"]), DefinitionError, "unknown input aa; did you mean a?"),
    mistake(of(["a"], ["bb"]), DefinitionError, "unknown output bb; did you mean b?"),
    mistake(lambda: Tap.mayeb, AttributeError, "did you mean maybe?"),
    mistake(lambda: Pots.mositure, AttributeError, "did you mean moisture?"),
    mistake(of(["Tap.pot"]), DefinitionError, "Bad.fresh|Tap.pot|a, b"),
    mistake(of([Tap]), DefinitionTypeError, "Bad.fresh|Featureset"),
    mistake(of([Pots]), DefinitionTypeError, "Bad.fresh|Dataset"),
    mistake(of([Pots.pot]), DefinitionTypeError, "Bad.fresh|Pots.pot"),
    mistake(of([3]), DefinitionTypeError, "Bad.fresh|3"),
    mistake(of([F()]), DefinitionTypeError, "Bad.fresh|not a feature"),
    mistake(of(["a"], ["gone"]), DefinitionError, "Bad.fresh|gone|a, b"),
    mistake(of(["a"], [Tap.pot]), DefinitionTypeError, "Bad.fresh|Tap.pot|another featureset"),
    mistake(of(["a"], [Tap]), DefinitionTypeError, "Bad.fresh|Featureset"),
    mistake(of(["a"], [3]), DefinitionTypeError, "Bad.fresh|3"),
    mistake(of(["a"], ["b", "b"]), DefinitionError, "Bad.fresh|Bad.b|twice"),
    # The fault is reported at the commit, as other environments may select another extractor.
    mistake(doubled, CommitTypeError, "Bad.a|compute|_caraway_alias_Bad.a"),
]


@pytest.mark.spec("featuresets:12:1")
@pytest.mark.parametrize(ROW, [*FEATURES, *EXTRACTORS])
def test_a_mistake_is_told_with_its_facts(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)
