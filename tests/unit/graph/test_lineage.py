from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from caraway.dtypes.types import DATETIME, INT
from caraway.graph.functions import PythonFunction
from caraway.graph.lineage import effective_field_tags, effective_owners, effective_tags
from caraway.graph.operators import Input, Operator, Rename, Transform
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    FeaturesetSpec,
    FeatureSpec,
    FieldSpec,
    Graph,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from tests.unit.graph import building


def python(output: str, *inputs: str) -> PythonExtractor:
    given: dict[str, Any] = {"datasets": ("B",), "version": 0, "source_code": "", "pickled": b""}
    return PythonExtractor(name="f", inputs=inputs, outputs=(output,), **given)


def dataset(name: str, *tags: str, of: tuple[str, ...] = (), field: tuple[str, ...] = ()) -> DatasetSpec:
    made = building.dataset(name, {"k": INT, "v": INT, "at": DATETIME}, keys=["k"], metadata=Metadata(tags=tags))
    key, value, at = made.fields
    made = replace(made, fields=(key, replace(value, metadata=Metadata(tags=field)), at))
    if not of:
        return made
    first: Operator = Input(dataset=of[0])
    operator = reduce(lambda left, right: building.join(left, right, "k"), of[1:], first)
    return replace(made, pipelines=(PipelineSpec(name="p", inputs=of, operator=operator),))


def tags_of(*datasets: DatasetSpec, sets: tuple[FeaturesetSpec, ...] = ()) -> dict[str, set[str]]:
    return {name: set(tags) for name, tags in effective_tags(Graph(datasets=datasets, featuresets=sets)).items()}


@pytest.mark.spec("connectors:9.2:3")
def test_tags_flow_from_datasets_to_what_is_computed_from_them_and_add_up() -> None:
    found = tags_of(
        dataset("A", "a"), dataset("B", "b"), dataset("C", "c", of=("A", "B")), dataset("D", of=("C",)), dataset("E")
    )
    assert found == {"A": {"a"}, "B": {"b"}, "C": {"a", "b", "c"}, "D": {"a", "b", "c"}, "E": set()}


def test_a_negated_tag_cancels_there_and_downstream_and_is_a_tag() -> None:
    found = tags_of(dataset("A", "a", "x"), dataset("B", "~a", of=("A",)), dataset("C", of=("B",)))
    assert found == {"A": {"a", "x"}, "B": {"~a", "x"}, "C": {"~a", "x"}}


def test_who_inherits_a_tag_and_its_negation_ends_with_neither() -> None:
    found = tags_of(
        dataset("A", "a"), dataset("B", "~a", of=("A",)), dataset("C", of=("A", "B")), dataset("D", of=("C",))
    )
    assert (found["C"], found["D"]) == (set(), set())


def test_a_tag_of_ones_own_stands_against_an_inherited_negation() -> None:
    assert tags_of(dataset("A", "~a"), dataset("B", "a", of=("A",)))["B"] == {"a"}


def test_features_inherit_from_datasets_fields_featuresets_and_features() -> None:
    def feature(name: str, *tags: str) -> FeatureSpec:
        return FeatureSpec(name=name, dtype=INT, metadata=Metadata(tags=tags))

    lookup = LookupExtractor(name="l", dataset="A", field="v", inputs=("S.k",), output="S.v")
    one = FeaturesetSpec(
        name="S",
        features=(feature("k", "key"), feature("v"), feature("clean", "~pii")),
        extractors=(lookup, python("S.clean", "S.v")),
        metadata=Metadata(tags=("set",)),
    )
    # A dataset and a featureset of the same name are distinct.
    other = building.featureset("A", {"v": INT}, AliasExtractor(name="a", input="S.clean", output="A.v"))
    found = tags_of(dataset("A", "pii", field=("field",)), dataset("B", "b"), sets=(one, other))
    assert found["S.k"] == {"key", "set"}
    assert found["S.v"] == {"key", "set", "pii", "field"}
    assert found["S.clean"] == {"key", "set", "~pii", "field", "b"}
    assert found["A.v"] == found["S.clean"]
    assert set(found) == {"A", "B", "S.k", "S.v", "S.clean", "A.v"}


@pytest.mark.spec("connectors:9.2:1")
def test_fields_and_features_belong_to_the_owner_of_what_contains_them() -> None:
    one = replace(dataset("A"), metadata=Metadata(owner="a@x.co"))
    own = replace(one.fields[1], metadata=Metadata(owner="v@x.co"))
    features = building.featureset("S", {"x": INT, "y": INT}, metadata=Metadata(owner="s@x.co"))
    x, y = features.features
    features = replace(features, features=(x, replace(y, metadata=Metadata(owner="y@x.co"))))
    graph = Graph(datasets=(replace(one, fields=(one.fields[0], own, one.fields[2])),), featuresets=(features,))
    assert effective_owners(graph) == {
        "A": "a@x.co",
        "A.k": "a@x.co",
        "A.v": "v@x.co",
        "A.at": "a@x.co",
        "S": "s@x.co",
        "S.x": "s@x.co",
        "S.y": "y@x.co",
    }


def test_tags_of_fields_follow_their_columns() -> None:
    source = dataset("A", field=("pii",))
    derived = dataset("B", of=("A",))
    renamed = Rename(of=Input(dataset="A"), pairs=(("v", "w"),))
    function = PythonFunction(name="f", pickled=b"", source_code="")
    hidden = Transform(of=Input(dataset="A"), function=function, columns=None)
    v = derived.fields[1]

    def made(name: str, operator: Operator, *fields: FieldSpec) -> DatasetSpec:
        key, _, time = derived.fields
        pipeline = PipelineSpec(name="p", inputs=("A",), operator=operator)
        return replace(derived, name=name, fields=(key, *fields, time), pipelines=(pipeline,))

    cancelled = replace(v, metadata=Metadata(tags=("~pii",)))
    graph = Graph(
        datasets=(
            source,
            derived,
            made("C", renamed, replace(v, name="w")),
            made("D", hidden, v),
            made("E", Input(dataset="A"), cancelled),
            dataset("F", of=("B",)),
        ),
        featuresets=(building.featureset("S", {"x": INT}, python("S.x")),),
    )
    found = effective_field_tags(graph)
    private = {name for name, tags in found.items() if "pii" in tags}
    assert private == {"A.v", "B.v", "C.w", "D.v", "F.v"}
    assert found["E.v"] == {"~pii"}
    assert effective_tags(graph)["S.x"] == {"pii"}
    assert not any(effective_tags(graph)[each.name] for each in graph.datasets)
