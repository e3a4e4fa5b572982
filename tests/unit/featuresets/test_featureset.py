# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, attr-defined, list-item, untyped-decorator"
from typing import Any, Optional

import pandas as pd
import pytest

from caraway.dtypes import between
from caraway.errors import DefinitionError
from caraway.expr import col
from caraway.expr.nodes import Node
from caraway.featuresets import (
    ExtractorType,
    Feature,
    extractor,
    feature,
    featureset,
    is_valid_feature,
    is_valid_featureset,
)
from caraway.featuresets import feature as F
from caraway.graph.specs import AliasExtractor, ExpressionExtractor, LookupExtractor, Metadata, PythonExtractor
from caraway.lib import desc, includes, inputs, meta, outputs
from tests.unit.featuresets.pots import Pots, Tap

__owner__ = "module@example.com"


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
    def advise(cls, ts: Any, species: Any, pot: Any) -> Any:
        del ts, pot
        return (species + cls.mark()).rename("advice")

    @extractor
    @inputs("dry")
    @outputs("score")
    def rate(cls, ts: Any, dry: Any) -> Any:
        del ts
        return pd.DataFrame({str(cls.score): dry.astype(float)})

    @classmethod
    def mark(cls) -> str:
        return "!"


@pytest.mark.spec(
    "featuresets:2.1:1",
    "featuresets:2.1:2",
    "featuresets:2.1:3",
    "featuresets:2.1:6",
    "featuresets:2.2:7",
    "featuresets:1:2",
)
def test_features() -> None:
    assert PotState._name == "PotState"
    assert [f.name for f in PotState.features][:3] == ["pot", "count", "species"]
    assert PotState.all()[0] == "PotState.pot"
    assert (str(PotState.dry), repr(PotState.dry), PotState.dry.fqn_) == ("dry", "PotState.dry", "PotState.dry")
    assert PotState.feature("dry") is PotState.dry
    assert PotState.feature("gone") is None
    assert PotState.species.dtype is str
    assert {PotState.pot: 1}[PotState.feature("pot")] == 1  # type: ignore[index]
    assert (desc(PotState.species), desc(PotState.moisture), desc(PotState)) == ("the species", "how wet", "pots")
    with pytest.raises(AttributeError, match="no feature gone; features: pot"):
        _ = PotState.gone
    assert (is_valid_feature("A.b"), is_valid_feature("A"), is_valid_featureset("A")) == (True, False, True)


@pytest.mark.spec("featuresets:2.2:3", "featuresets:2.2:5", "featuresets:2.6:1", "featuresets:2.6:2")
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


@pytest.mark.spec("featuresets:2.1:4")
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


@pytest.mark.spec("featuresets:2.1:7")
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
        def both(cls, ts: Any) -> Any: ...

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
        def compute(cls, ts: Any, maybe: Any) -> Any: ...

    spec = Siblings.to_spec().extractors[-1]
    assert isinstance(spec, PythonExtractor)
    assert spec.outputs == ("Siblings.b",)


def define(annotations: dict[str, Any], **values: Any) -> Any:
    return featureset(type("Made", (), {"__annotations__": annotations, **values}))


@pytest.mark.spec("featuresets:2.3:7", "featuresets:2.2:6", "types:15:5")
def test_what_is_accepted() -> None:
    made = define(
        {"x": int, "a": float, "b": Optional[int], "c": between(int, 0, 9)}, a=F(col("x")), b=F(col("x")), c=F(col("x"))
    )
    assert len(made.to_spec().extractors) == 3
    # A key feature that is optional, or of another type, is cast when it is looked up.
    define({"pot": Optional[int], "a": Optional[str]}, a=F(Pots.species))
    define({"pot": str, "a": Optional[str]}, a=F(Pots.species))
    # A falsy default is a default as well.
    zero = define({"pot": int, "a": float}, a=F(Pots.moisture, default=0.0)).to_spec().extractors[0]
    assert zero.default == 0.0


def test_an_unbound_feature_has_no_type() -> None:
    unbound: Feature = feature()
    with pytest.raises(DefinitionError, match="once its featureset is defined"):
        _ = unbound.data_type


@pytest.mark.spec("featuresets:2.1:5")
def test_the_class_is_still_there() -> None:
    assert isinstance(PotState.original_cls, type)
    assert PotState.original_cls.__name__ == "PotState"


@pytest.mark.spec("featuresets:2.2:1", "featuresets:2.2:2", "featuresets:2.2:4")
def test_forms_of_features() -> None:
    made = define(
        {"pot": int, "bare": int, "empty": int, "species": Optional[str], "moisture": Optional[float], "alias": int},
        empty=F(),
        # An optional field keeps its type, another one becomes optional.
        species=F(Pots.species),
        moisture=F(Pots.moisture),
        alias=F(Tap.pot, version=3),
        ignored=F(Tap.pot),
    )
    extractors = {item.outputs: item for item in made.extractors}
    assert set(extractors) == {("Made.species",), ("Made.moisture",), ("Made.alias",)}
    lookup, alias = extractors["Made.species",], extractors["Made.alias",]
    assert (lookup.extractor_type, lookup.inputs, lookup.datasets) == (ExtractorType.LOOKUP, ("Made.pot",), ("Pots",))
    assert (alias.extractor_type, alias.inputs, alias.version) == (ExtractorType.ALIAS, ("Tap.pot",), 3)
    assert (lookup.version, lookup.function, lookup.fqn()) == (0, None, "Made._caraway_lookup_Pots.species")
    # A name without an annotation is no feature.
    assert [f.name for f in made.features] == ["pot", "bare", "empty", "species", "moisture", "alias"]


def test_default_none_is_no_default() -> None:
    assert define({"pot": int, "a": Optional[str]}, a=F(Pots.species, default=None)).extractors[0].spec.default is None
    assert feature(default=None).default is None


def test_lists_of_keys_are_looked_up_element_by_element() -> None:
    made = define(
        {"pot": list[Optional[int]], "a": list[Optional[str]], "b": list[float], "c": list[Optional[list[str]]]},
        a=F(Pots.species),
        b=F(Pots.moisture, default=0.5),
        c=F(Pots.tags),
    )
    specs = {item.output: item for item in made.to_spec().extractors}
    assert all(item.element_wise for item in specs.values())
    assert specs["Made.b"].default == 0.5
    # A list feature whose key is no list is a lookup of a list.
    whole = define({"pot": int, "a": Optional[list[str]], "pots": list[int]}, a=F(Pots.tags))
    assert whole.to_spec().extractors[0].element_wise is False
    filled = define({"pot": int, "a": list[str]}, a=F(Pots.tags, default=[]))
    assert (filled.to_spec().extractors[0].default, filled.to_spec().extractors[0].element_wise) == ([], False)


def test_decorators_of_an_extractor_stand_in_any_order() -> None:
    def helper() -> None: ...

    @featureset
    class Ordered:
        a: int
        b: int

        @meta(owner="above@example.com")
        @includes(helper)
        @outputs("b")
        @inputs("a")
        @extractor
        def above(cls, ts: Any, a: Any) -> Any: ...

        @extractor(env="prod")
        @meta(owner="below@example.com")
        @inputs("b")
        @outputs("a")
        @includes(helper)
        def below(cls, ts: Any, b: Any) -> Any: ...

    above, below = Ordered.to_spec().extractors
    assert isinstance(above, PythonExtractor)
    assert isinstance(below, PythonExtractor)
    assert (above.inputs, above.outputs, above.metadata.owner) == (("Ordered.a",), ("Ordered.b",), "above@example.com")
    assert (below.inputs, below.outputs, below.metadata.owner) == (("Ordered.b",), ("Ordered.a",), "below@example.com")
    assert above.env == ()
    assert below.env == ("prod",)
    assert "def helper" in above.source_code
    assert "def helper" in below.source_code


def test_direct_calls_check_and_convert_nothing() -> None:
    @featureset
    class Loose:
        a: int

        @extractor
        def odd(cls, ts: Any) -> Any:
            results: dict[Any, Any] = {
                "list": [1],
                "unnamed": pd.Series([1]),
                "extra": pd.DataFrame({"a": [1], "z": [2]}),
            }
            return results[cls]

    ts = pd.Series(pd.to_datetime(["2024-01-01"], utc=True))
    assert Loose.odd("list", ts) == [1]
    assert Loose.odd("unnamed", ts).name is None
    assert list(Loose.odd("extra", ts).columns) == ["Loose.a", "Loose.z"]
