# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, attr-defined, list-item, untyped-decorator"
from collections.abc import Callable
from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from caraway.datasets import dataset, field
from caraway.dtypes import between
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr import col
from caraway.expr.nodes import Node
from caraway.featuresets import (
    Feature,
    extractor,
    feature,
    featureset,
    is_valid_feature,
    is_valid_featureset,
)
from caraway.featuresets import feature as F  # noqa: N812 (as users write it)
from caraway.graph.specs import AliasExtractor, ExpressionExtractor, LookupExtractor, Metadata, PythonExtractor
from caraway.lib import desc, inputs, meta, outputs

__owner__ = "module@example.com"


@dataset(index=True)
class Pots:
    pot: int = field(key=True)
    species: str
    moisture: Optional[float]
    tags: list[str]
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


@meta(owner="ana@example.com", description="pots")
@featureset
class PotState:
    pot: int = F(Tap.pot)
    count: int = F(Tap.maybe, default=0)
    # the species
    species: str = F(Pots.species, default="fern")
    moisture: Optional[float] = F(Pots.moisture).meta(description="how wet")
    dry: bool = F(col("moisture").fillnull(0.0) < 0.2, env="prod")
    wet: float = F(col("count") + 1)
    advice: str
    score: float

    @meta(owner="extractor@example.com")
    @extractor(deps=[Pots], version=2)
    @inputs("species", Tap.pot)
    @outputs("advice")
    def advise(cls, ts: Any, species: Any, pot: Any) -> Any:  # noqa: N805 (a class method of the API)
        del ts, pot
        return (species + cls.mark()).rename("advice")

    @extractor
    @inputs("dry")
    @outputs("score")
    def rate(cls, ts: Any, dry: Any) -> Any:  # noqa: N805 (a class method of the API)
        del ts
        return pd.DataFrame({str(cls.score): dry.astype(float)})

    @classmethod
    def mark(cls) -> str:
        return "!"


def test_features() -> None:
    assert [f.name for f in PotState.features][:3] == ["pot", "count", "species"]
    assert PotState.all()[0] == "PotState.pot"
    assert (str(PotState.dry), repr(PotState.dry), PotState.dry.fqn_) == ("dry", "PotState.dry", "PotState.dry")
    assert PotState.feature("dry") is PotState.dry
    assert PotState.feature("gone") is None
    assert PotState.species.dtype is str
    assert {PotState.pot: 1}[PotState.feature("pot")] == 1
    assert (desc(PotState.species), desc(PotState.moisture), desc(PotState)) == ("the species", "how wet", "pots")
    with pytest.raises(AttributeError, match="no feature gone; features: pot"):
        _ = PotState.gone
    assert (is_valid_feature("A.b"), is_valid_feature("A"), is_valid_featureset("A")) == (True, False, True)


def test_spec() -> None:
    spec = PotState.to_spec()
    assert spec.metadata.owner == "ana@example.com"
    assert Tap.to_spec().metadata.owner == "module@example.com"
    by_output = {getattr(e, "output", None) or getattr(e, "outputs", None): e for e in spec.extractors}
    expected_lookup = LookupExtractor(
        name="_caraway_lookup_Pots.species",
        dataset="Pots",
        field="species",
        inputs=("PotState.pot",),
        output="PotState.species",
        default="fern",
        metadata=Metadata(description="the species"),
    )
    assert by_output["PotState.species"] == expected_lookup
    assert by_output["PotState.count"] == AliasExtractor(
        name="_caraway_alias_PotState.count", input="Tap.maybe", output="PotState.count", default=0
    )
    dry = by_output["PotState.dry"]
    assert isinstance(dry, ExpressionExtractor)
    assert (dry.inputs, dry.env) == (("PotState.moisture",), ("prod",))
    assert isinstance(dry.expr, Node)
    advise = by_output["PotState.advice",]
    assert isinstance(advise, PythonExtractor)
    assert (advise.inputs, advise.datasets, advise.version) == (("PotState.species", "Tap.pot"), ("Pots",), 2)
    assert advise.metadata.owner == "extractor@example.com"
    assert "def advise" in advise.source_code


def test_extractors_come_in_order() -> None:
    assert [getattr(e, "name", "") for e in PotState.extractors] == [
        "_caraway_expr_PotState.dry",
        "_caraway_expr_PotState.wet",
        "_caraway_alias_PotState.pot",
        "_caraway_alias_PotState.count",
        "_caraway_lookup_Pots.species",
        "_caraway_lookup_Pots.moisture",
        "advise",
        "rate",
    ]


def test_direct_calls() -> None:
    ts = pd.Series(pd.to_datetime(["2024-01-01"], utc=True))
    advice = PotState.advise(PotState, ts, pd.Series(["fern"]), pd.Series([1]))
    assert (advice.name, advice.tolist()) == ("PotState.advice", ["fern!"])
    assert list(PotState.rate(PotState, ts, pd.Series([True])).columns) == ["PotState.score"]
    assert PotState.mark() == "!"
    with pytest.raises(DefinitionError, match=r"takes 2 inputs \(PotState.species, Tap.pot\), got 1"):
        PotState.advise(PotState, ts, pd.Series(["fern"]))


def test_without_decorators_an_extractor_has_no_inputs_and_all_outputs() -> None:
    @featureset
    class Every:
        a: int
        b: int

        @extractor
        def both(cls, ts: Any) -> Any: ...  # noqa: N805 (a class method of the API)

    (spec,) = Every.to_spec().extractors
    assert isinstance(spec, PythonExtractor)
    assert (spec.inputs, spec.outputs) == ((), ("Every.a", "Every.b"))


def test_siblings_may_be_named_by_identifier() -> None:
    @featureset
    class Siblings:
        a: int = F(Tap.pot)
        b: int = F()

        @extractor
        @inputs(Tap.maybe)
        @outputs(b)
        def compute(cls, ts: Any, maybe: Any) -> Any: ...  # noqa: N805 (a class method of the API)

    spec = Siblings.to_spec().extractors[-1]
    assert isinstance(spec, PythonExtractor)
    assert spec.outputs == ("Siblings.b",)


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
        members = {"__annotations__": {"a": int, "b": int}, "fresh": extractor(**options)(decorated)}
        return featureset(type("Bad", (), members))

    return run


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        # 2.1
        (bad({"a": int}, a=3), DefinitionTypeError, ["Bad", "a", "3"]),
        (bad({"a": int}, a=Tap.pot), DefinitionTypeError, ["Bad", "a", "Tap.pot"]),
        (bad({"dtype": int, "features": int}), DefinitionError, ["Bad", "dtype", "features"]),
        (bad({"a": object}), DefinitionTypeError, ["Bad", "a", "object"]),
        # 2.2
        (lambda: feature(Tap.pot, Tap.maybe), DefinitionTypeError, ["2"]),
        (lambda: feature(default=3), DefinitionTypeError, ["3"]),
        (lambda: feature("Tap.pot", default=3), DefinitionTypeError, ["3"]),
        (lambda: feature(col("a"), default=3), DefinitionError, ["fillnull"]),
        (bad({"a": int}, a=F("Tap.pot")), DefinitionTypeError, ["Bad.a", "Tap.pot"]),
        (lambda: feature(Tap.pot, env="~"), DefinitionError, ["env"]),
        (lambda: feature(Tap.pot, version="1"), DefinitionTypeError, ["version"]),
        # 2.3
        (
            bad({"pot": int, "a": Optional[str]}, a=F(Unindexed.species)),
            DefinitionError,
            ["Bad.a", "Unindexed", "index"],
        ),
        (bad({"a": Optional[str]}, a=F(Pots.species)), DefinitionError, ["Bad.a", "pot", "Pots", "Bad"]),
        (bad({"pot": int, "a": str}, a=F(Pots.species)), DefinitionTypeError, ["Bad.a", "str", "Optional[str]"]),
        (bad({"pot": int, "a": Optional[str]}, a=F(Pots.species, default="x")), DefinitionTypeError, ["Bad.a", "str"]),
        (bad({"pot": int, "a": str}, a=F(Pots.species, default=0.0)), DefinitionError, ["Bad.a", "0.0", "str"]),
        (bad({"pot": int, "a": float}, a=F(Pots.moisture, default=1)), DefinitionError, ["Bad.a", "1", "float"]),
        (
            bad({"pot": int, "a": Optional[str], "b": str}, a=F(Pots.species), b=F(Pots.species, default="x")),
            DefinitionError,
            ["Bad.a", "Bad.b"],
        ),
        (
            bad({"pot": list[int], "a": list[str]}, a=F(Pots.species)),
            DefinitionTypeError,
            ["Bad.a", "List[str]", "lists of keys", "List[Optional[str]]"],
        ),
        # 2.4
        (bad({"a": str}, a=F(Tap.pot)), DefinitionTypeError, ["Bad.a", "str", "Tap.pot", "int"]),
        (bad({"a": int}, a=F(Tap.pot, default=1)), DefinitionTypeError, ["Bad.a", "Optional[int]"]),
        (bad({"a": str}, a=F(Tap.maybe, default="1")), DefinitionTypeError, ["Bad.a", "Optional[str]"]),
        # The value of an alias's default is checked when it is committed.
        (lambda: bad({"a": int}, a=F(Tap.maybe, default=0.5))().to_spec(), DefinitionError, ["Bad.a", "0.5"]),
        # 2.5
        (bad({"a": int}, a=F(col("gone") + 1)), DefinitionError, ["Bad.a", "gone"]),
        (bad({"a": int}, a=F(col("Tap.pot") + 1)), DefinitionError, ["Bad.a", "Tap.pot"]),
        (bad({"x": float, "a": int}, a=F(col("x") + 1)), DefinitionTypeError, ["Bad.a", "int", "float", 'col("x")']),
        (bad({"x": Optional[int], "a": int}, a=F(col("x"))), DefinitionTypeError, ["Bad.a", "Optional[int]"]),
        (bad({"x": str, "a": int}, a=F(col("x") + 1)), DefinitionError, ["Bad.a", "+"]),
        (bad({"x": int, "a": int}, a=F(col("x").astype(int))), DefinitionTypeError, ["Bad.a", "astype"]),
        # 2.6
        (lambda: extractor(lambda self, ts: ts), DefinitionTypeError, ["cls", "self"]),
        (lambda: extractor(lambda cls: cls), DefinitionTypeError, ["ts", "nothing"]),
        (lambda: extractor(lambda cls, time: time), DefinitionTypeError, ["ts", "time"]),
        (lambda: extractor(deps=[], depends_on=[]), DefinitionError, ["deps", "depends_on"]),
        (lambda: extractor(deps=(Pots,))(function), DefinitionTypeError, ["function", "list"]),
        (lambda: extractor(deps=["Pots"])(function), DefinitionTypeError, ["function", "'Pots'"]),
        (lambda: extractor(deps=[Unindexed])(function), DefinitionError, ["function", "Unindexed", "index"]),
        (lambda: extractor(version=None)(function), DefinitionTypeError, ["function", "version"]),
        (lambda: inputs(), DefinitionError, ["@inputs"]),
        (lambda: outputs(), DefinitionError, ["@outputs"]),
        (of(["gone"]), DefinitionError, ["Bad.fresh", "gone", "a, b"]),
        (of([Tap]), DefinitionTypeError, ["Bad.fresh", "Featureset"]),
        (of([Pots]), DefinitionTypeError, ["Bad.fresh", "Dataset"]),
        (of([3]), DefinitionTypeError, ["Bad.fresh", "3"]),
        (of(["a"], ["gone"]), DefinitionError, ["Bad.fresh", "gone"]),
        (of(["a"], [Tap.pot]), DefinitionTypeError, ["Bad.fresh", "Tap.pot"]),
        (of(["a"], [Tap]), DefinitionTypeError, ["Bad.fresh", "Featureset"]),
        (of(env="a b"), DefinitionError, ["fresh", "a b"]),
    ],
)
def test_what_is_refused(wrong: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:
        wrong()
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)


def test_what_is_accepted() -> None:
    made = bad(
        {"x": int, "a": float, "b": Optional[int], "c": between(int, 0, 9)}, a=F(col("x")), b=F(col("x")), c=F(col("x"))
    )()
    assert len(made.to_spec().extractors) == 3
    # A key feature that is optional, or of another type, is cast when it is looked up.
    bad({"pot": Optional[int], "a": Optional[str]}, a=F(Pots.species))()
    bad({"pot": str, "a": Optional[str]}, a=F(Pots.species))()
    # Falsy defaults are defaults.
    zero = bad({"pot": int, "a": float}, a=F(Pots.moisture, default=0.0))().to_spec().extractors[0]
    assert zero.default == 0.0


def test_an_unbound_feature_has_no_type() -> None:
    unbound: Feature = feature()
    with pytest.raises(DefinitionError, match="once its featureset is defined"):
        _ = unbound.data_type
