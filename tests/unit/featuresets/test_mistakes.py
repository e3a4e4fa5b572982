"""Tests of wrong featuresets, each with the class of its exception and the facts that the message names."""

# The tests pass wrong arguments, and type checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, attr-defined, call-arg, list-item, misc, untyped-decorator"
from collections.abc import Callable
from datetime import datetime
from typing import Any, Optional

import pytest

from caraway.datasets import dataset, field
from caraway.dtypes import Embedding, between, regex
from caraway.errors import CommitTypeError, DefinitionError, DefinitionTypeError
from caraway.expr import col, lit
from caraway.featuresets import extractor, feature, featureset
from caraway.featuresets import feature as F
from caraway.graph.specs import Graph
from caraway.graph.validation.graphs import validate
from caraway.lib import expectations, includes, inputs, meta, outputs

__owner__ = "module@example.com"


@dataset(index=True)
class Pots:
    pot: int = field(key=True)
    species: str
    moisture: Optional[float]
    tags: list[str]
    height: int
    at: datetime


@dataset(index=True)
class Shelves:
    room: str = field(key=True)
    shelf: int = field(key=True)
    pots: int
    at: datetime


@dataset
class Unindexed:
    pot: int = field(key=True)
    species: str
    at: datetime


@featureset
class Tap:
    pot: int
    maybe: Optional[int]
    pots: list[int]


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


def spec(*rows: str) -> Any:
    return pytest.mark.spec(*(f"featuresets:{row}" for row in rows))


RESERVED = ("fqn_", "dtype", "featureset_name", "featureset", "extractor", "extractors", "features")

FEATURES: list[Any] = [
    # 2.1
    (bad({"a": int}, a=3), DefinitionTypeError, ["Bad", "a", "3"]),
    (bad({"a": int}, a=None), DefinitionTypeError, ["Bad", "a", "None"]),
    (bad({"a": int}, a=Pots.species), DefinitionTypeError, ["Bad", "a", "Pots.species"]),
    (bad({"a": int}, a=Tap.pot), DefinitionTypeError, ["Bad", "a", "Tap.pot"]),
    (bad({"dtype": int, "features": int}), DefinitionError, ["Bad", "dtype", "features"]),
    *((bad({name: int}), DefinitionError, ["Bad", name, "reserved"]) for name in RESERVED),
    (bad({"a": object}), DefinitionTypeError, ["Bad", "a", "object"]),
    (lambda: featureset(function), DefinitionTypeError, ["featureset", "function"]),
    (lambda: featureset("Bad"), DefinitionTypeError, ["class", "'Bad'"]),
    pytest.param(
        expecting("checks"), NotImplementedError, ["Bad", "checks"], marks=pytest.mark.spec("connectors:8.1:9")
    ),
    (expecting("checks", "others"), DefinitionError, ["Bad", "checks, others"]),
    # 2.2
    (lambda: feature(Tap.pot, Tap.maybe), DefinitionTypeError, ["2"]),
    (lambda: feature(default=3), DefinitionTypeError, ["3"]),
    (lambda: feature(default=0), DefinitionTypeError, ["0"]),
    (lambda: feature(default=""), DefinitionTypeError, ["''"]),
    (lambda: feature("Tap.pot", default=3), DefinitionTypeError, ["3"]),
    (lambda: feature(Pots, default=3), DefinitionTypeError, ["3"]),
    (lambda: feature(col("a"), default=3), DefinitionError, ["fillnull"]),
    (lambda: feature(col("a"), default=False), DefinitionError, ["fillnull"]),
    (bad({"a": int}, a=F("Tap.pot")), DefinitionTypeError, ["Bad.a", "Tap.pot"]),
    (bad({"a": int}, a=F(Pots)), DefinitionTypeError, ["Bad.a", "Pots"]),
    (bad({"a": int}, a=F(Tap)), DefinitionTypeError, ["Bad.a", "Tap"]),
    (bad({"a": int}, a=F(3)), DefinitionTypeError, ["Bad.a", "3"]),
    (lambda: feature(Tap.pot, env="~"), DefinitionError, ["env"]),
    (lambda: feature(Tap.pot, env=["a", "~b"]), DefinitionError, ["env", "mixes"]),
    (lambda: feature(Tap.pot, env=3), DefinitionTypeError, ["env", "3"]),
    (lambda: feature(Tap.pot, version="1"), DefinitionTypeError, ["version", "'1'"]),
    (lambda: feature(Tap.pot, version=True), DefinitionTypeError, ["version", "True"]),
    (lambda: feature(Tap.pot).meta(owner="nobody"), DefinitionError, ["nobody", "email"]),
    (lambda: feature(Tap.pot).meta(colour="red"), TypeError, ["colour"]),
    # 2.3
    pytest.param(
        bad({"pot": int, "a": Optional[str]}, a=F(Unindexed.species)),
        DefinitionError,
        ["Bad.a", "Unindexed", "index"],
        marks=spec("2.3:1"),
    ),
    pytest.param(
        bad({"a": Optional[str]}, a=F(Pots.species)),
        DefinitionError,
        ["Bad.a", "pot", "Pots", "Bad"],
        marks=spec("2.3:2"),
    ),
    (bad({"room": str, "a": Optional[int]}, a=F(Shelves.pots)), DefinitionError, ["Bad.a", "shelf", "Shelves"]),
    pytest.param(
        bad({"pot": int, "a": str}, a=F(Pots.species)),
        DefinitionTypeError,
        ["Bad.a", "str", "Optional[str]"],
        marks=spec("2.3:3"),
    ),
    (bad({"pot": int, "a": Optional[int]}, a=F(Pots.species)), DefinitionTypeError, ["Optional[int]", "Optional[str]"]),
    (bad({"pot": int, "a": float}, a=F(Pots.moisture)), DefinitionTypeError, ["Bad.a", "float", "Optional[float]"]),
    pytest.param(
        bad({"pot": int, "a": Optional[str]}, a=F(Pots.species, default="x")),
        DefinitionTypeError,
        ["Bad.a", "str"],
        marks=spec("2.3:4"),
    ),
    (bad({"pot": int, "a": int}, a=F(Pots.species, default=1)), DefinitionTypeError, ["Bad.a", "int", "str"]),
    pytest.param(
        bad({"pot": int, "a": str}, a=F(Pots.species, default=0.0)),
        DefinitionError,
        ["Bad.a", "0.0", "str"],
        marks=spec("2.3:5"),
    ),
    (bad({"pot": int, "a": float}, a=F(Pots.moisture, default=1)), DefinitionError, ["Bad.a", "1", "float"]),
    (bad({"pot": int, "a": int}, a=F(Pots.height, default=0.0)), DefinitionError, ["Bad.a", "0.0", "int"]),
    (bad({"pot": int, "a": int}, a=F(Pots.height, default=True)), DefinitionError, ["Bad.a", "True", "int"]),
    (bad({"pot": int, "a": list[str]}, a=F(Pots.tags, default=[1])), DefinitionError, ["Bad.a", "[1]"]),
    pytest.param(
        bad({"pot": int, "a": Optional[str], "b": str}, a=F(Pots.species), b=F(Pots.species, default="x")),
        DefinitionError,
        ["Bad.a", "Bad.b"],
        marks=spec("2.3:6"),
    ),
    # Lists of keys.
    (
        bad({"pot": list[int], "a": list[str]}, a=F(Pots.species)),
        DefinitionTypeError,
        ["Bad.a", "lists of keys", "List[Optional[str]]"],
    ),
    (
        bad({"pot": list[int], "a": list[Optional[str]]}, a=F(Pots.species, default="x")),
        DefinitionTypeError,
        ["Bad.a", "lists of keys", "List[str]"],
    ),
    (
        bad({"pot": list[int], "a": list[str]}, a=F(Pots.species, default=["x"])),
        DefinitionError,
        ["Bad.a", "['x']", "str"],
    ),
    (bad({"pot": int, "a": list[Optional[str]]}, a=F(Pots.species)), DefinitionTypeError, ["Bad.a", "Optional[str]"]),
    (
        bad({"room": list[str], "shelf": int, "a": list[Optional[int]]}, a=F(Shelves.pots)),
        DefinitionTypeError,
        ["Bad.a", "Optional[int]"],
    ),
    # 2.4
    (bad({"a": str}, a=F(Tap.pot)), DefinitionTypeError, ["Bad.a", "str", "Tap.pot", "int"]),
    (bad({"a": Optional[int]}, a=F(Tap.pot)), DefinitionTypeError, ["Bad.a", "Optional[int]", "Tap.pot"]),
    (bad({"a": int}, a=F(Tap.maybe)), DefinitionTypeError, ["Bad.a", "Tap.maybe", "Optional[int]"]),
    (bad({"a": int}, a=F(Tap.pot, default=1)), DefinitionTypeError, ["Bad.a", "Optional[int]"]),
    (bad({"a": Optional[int]}, a=F(Tap.maybe, default=1)), DefinitionTypeError, ["Bad.a", "Tap.maybe"]),
    (bad({"a": str}, a=F(Tap.maybe, default="1")), DefinitionTypeError, ["Bad.a", "Optional[str]"]),
    # The value of an alias's default is checked when it is committed.
    (lambda: bad({"a": int}, a=F(Tap.maybe, default=0.5))().to_spec(), DefinitionError, ["Bad.a", "0.5", "int"]),
    # 2.5
    (bad({"a": int}, a=F(col("gone") + 1)), DefinitionError, ["Bad.a", "gone", "features: a"]),
    (bad({"a": int}, a=F(col("Tap.pot") + 1)), DefinitionError, ["Bad.a", "Tap.pot"]),
    (bad({"x": float, "a": int}, a=F(col("x") + 1)), DefinitionTypeError, ["Bad.a", "int", "float", 'col("x")']),
    (bad({"x": Optional[int], "a": int}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "Optional[int]"]),
    (bad({"x": int, "a": str}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "str", "int"]),
    (bad({"x": int, "a": bool}, a=F(lit(1))), DefinitionTypeError, ["Bad.a", "bool", "int"]),
    (bad({"x": str, "a": between(int, 0, 9)}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "str"]),
    (bad({"x": int, "a": regex("a")}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "int"]),
    (bad({"x": Embedding[3], "a": Embedding[4]}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "Embedding[4]"]),
    (bad({"x": dict[str, int], "a": dict[str, str]}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "Dict"]),
    (bad({"x": int, "a": int}, a=F(col("x").astype(int))), DefinitionTypeError, ["Bad.a", "astype"]),
]

EXTRACTORS: list[Any] = [
    (lambda: extractor(lambda self, ts: ts), DefinitionTypeError, ["cls", "self"]),
    (lambda: extractor(lambda: 0), DefinitionTypeError, ["cls", "nothing"]),
    (lambda: extractor(lambda cls: cls), DefinitionTypeError, ["ts", "nothing"]),
    (lambda: extractor(lambda cls, time: time), DefinitionTypeError, ["ts", "time"]),
    (lambda: extractor(3), DefinitionTypeError, ["int 3", "function"]),  # type: ignore[call-overload]
    (lambda: extractor(classmethod(function)), DefinitionTypeError, ["classmethod"]),  # type: ignore[call-overload]
    pytest.param(
        lambda: extractor(deps=[], depends_on=[]), DefinitionError, ["deps", "depends_on"], marks=spec("2.6:1")
    ),
    (lambda: extractor(deps=(Pots,))(function), DefinitionTypeError, ["function", "list"]),  # type: ignore[call-overload]
    (lambda: extractor(deps=Pots)(function), DefinitionTypeError, ["function", "list"]),  # type: ignore[call-overload]
    (lambda: extractor(depends_on=["Pots"])(function), DefinitionTypeError, ["function", "'Pots'"]),
    (lambda: extractor(deps=[Tap])(function), DefinitionTypeError, ["function", "Tap"]),
    (lambda: extractor(deps=[Unindexed])(function), DefinitionError, ["function", "Unindexed", "index"]),
    pytest.param(
        lambda: extractor(version=None)(function),  # type: ignore[call-overload]
        DefinitionTypeError,
        ["function", "None"],
        marks=spec("2.6:2"),
    ),
    (lambda: extractor(version="1")(function), DefinitionTypeError, ["function", "'1'"]),  # type: ignore[call-overload]
    (lambda: extractor(version=1.0)(function), DefinitionTypeError, ["function", "1.0"]),  # type: ignore[call-overload]
    (lambda: extractor(version=True)(function), DefinitionTypeError, ["function", "True"]),
    pytest.param(of(env="a b"), DefinitionError, ["fresh", "a b"], marks=spec("2.6:3")),
    (of(env=""), DefinitionError, ["fresh", "env"]),
    (of(env=[3]), DefinitionTypeError, ["fresh", "[3]"]),
    (lambda: inputs(), DefinitionError, ["@inputs"]),
    (lambda: outputs(), DefinitionError, ["@outputs"]),
    (of(["gone"]), DefinitionError, ["Bad.fresh", "gone", "a, b"]),
    (of(["Tap.pot"]), DefinitionError, ["Bad.fresh", "Tap.pot", "a, b"]),
    (of([Tap]), DefinitionTypeError, ["Bad.fresh", "Featureset"]),
    (of([Pots]), DefinitionTypeError, ["Bad.fresh", "Dataset"]),
    (of([Pots.pot]), DefinitionTypeError, ["Bad.fresh", "Pots.pot"]),
    (of([3]), DefinitionTypeError, ["Bad.fresh", "3"]),
    (of([F()]), DefinitionTypeError, ["Bad.fresh", "not a feature"]),
    (of(["a"], ["gone"]), DefinitionError, ["Bad.fresh", "gone", "a, b"]),
    (of(["a"], [Tap.pot]), DefinitionTypeError, ["Bad.fresh", "Tap.pot", "another featureset"]),
    (of(["a"], [Tap]), DefinitionTypeError, ["Bad.fresh", "Featureset"]),
    (of(["a"], [3]), DefinitionTypeError, ["Bad.fresh", "3"]),
    (of(["a"], ["b", "b"]), DefinitionError, ["Bad.fresh", "Bad.b", "twice"]),
    (lambda: includes("helper"), DefinitionTypeError, ["@includes", "'helper'"]),
    (lambda: meta(owner="a@b"), DefinitionError, ["a@b", "email"]),
    (lambda: meta(colour="red"), TypeError, ["colour"]),
    # The fault is reported at the commit, as other environments may select another extractor.
    (doubled, CommitTypeError, ["Bad.a", "compute", "_caraway_alias_Bad.a"]),
]


@pytest.mark.spec("featuresets:12:1")
@pytest.mark.parametrize(("wrong", "error", "facts"), [*FEATURES, *EXTRACTORS])
def test_a_mistake_is_told_with_its_facts(wrong: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:
        wrong()
    missing = [fact for fact in facts if fact not in str(caught.value)]
    assert not missing, str(caught.value)
