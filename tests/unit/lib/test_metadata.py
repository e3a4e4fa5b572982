"""Thresholds of drift in the metadata of features: checked at the definition."""

import math
from datetime import datetime
from typing import Any

import pytest

from caraway.datasets import Dataset, dataset, field, pipeline
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.featuresets import extractor, feature, featureset
from caraway.graph.drift import DEFAULT_DRIFT
from caraway.graph.fingerprints import dataset_fingerprint, extractor_fingerprint
from caraway.graph.specs import PythonExtractor
from caraway.lib import Drift, desc, inputs, meta, outputs


def users(drift: Drift | None) -> Any:
    @meta(owner="a@b.example", drift=Drift(mean=2.0))
    @featureset
    class Users:
        id: int
        score: float = feature().meta(drift=drift)

    return Users


def test_thresholds_of_a_feature_are_kept() -> None:
    spec = users(Drift(psi=0.5, missing=math.inf)).to_spec()
    assert spec.metadata.drift == Drift(mean=2.0)
    assert spec.features[1].metadata.drift == Drift(psi=0.5, missing=math.inf)


def test_thresholds_that_are_absent_come_from_the_wider_ones() -> None:
    drift = Drift(psi=0.0).over(Drift(psi=1.0, ks=0.3)).over(DEFAULT_DRIFT)
    assert drift == Drift(psi=0.0, ks=0.3, mean=0.5, missing=0.05, categories=0.02)


@pytest.mark.parametrize(
    ("drift", "error", "text"),
    [
        (0.2, DefinitionTypeError, r"drift is caraway.lib.Drift\(psi=..., ks=...\), not 0.2"),
        (Drift(ks="much"), DefinitionTypeError, "ks is a number, not 'much'"),  # type: ignore[arg-type]
        (Drift(ks=-0.1), DefinitionError, "ks is a number from 0, not -0.1"),
        (Drift(mean=math.nan), DefinitionError, "mean is a number from 0, not nan"),
    ],
)
def test_wrong_thresholds_are_refused(drift: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        feature().meta(drift=drift)


@dataset
class Cuttings:
    """Cuttings in the propagator,

    by tray.
    """

    tray: int
    at: datetime = field(timestamp=True)


def derived(about: str) -> Dataset:
    def rooted(cls: Any, cuttings: Any) -> Any:
        return cuttings.filter(lambda frame: frame["tray"] > 0)

    rooted.__doc__ = about

    class Rooted:
        tray: int
        at: datetime = field(timestamp=True)
        of_tray = pipeline(inputs(Cuttings)(rooted))

    Rooted.__doc__ = about
    return dataset(Rooted)


@featureset
class Trays:
    """The trays."""

    tray: int
    twice: int

    @extractor
    @inputs("tray")
    @outputs("twice")
    def doubled(cls, ts, tray):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Doubles the tray."""
        return tray * 2


def test_docstrings_describe_what_has_no_other_description() -> None:
    assert Cuttings.to_spec().metadata.description == desc(Cuttings) == "Cuttings in the propagator,\n\nby tray."
    (spec,) = derived("Rooted cuttings.").to_spec().pipelines
    assert spec.metadata.description == "Rooted cuttings."
    assert Trays.to_spec().metadata.description == desc(Trays) == "The trays."
    (extractor_spec,) = Trays.to_spec().extractors
    assert (
        extractor_spec.metadata.description == desc(Trays.extractors[0]) == desc(Trays.doubled) == "Doubles the tray."
    )
    assert desc(meta(description="Other words.")(derived("Rooted cuttings."))) == "Other words."
    assert meta(owner="a@b.example")(derived("Rooted.")).to_spec().metadata.description == "Rooted."
    assert desc(derived("")) == desc(5) == desc(object()) == ""


def test_another_docstring_is_the_same_definition() -> None:
    assert dataset_fingerprint(derived("One.").to_spec()) == dataset_fingerprint(derived("Another.").to_spec())


BODY = "    return tray * 2  # doubled\n"
HEAD = "@extractor\n@inputs(\n    tray,\n)\ndef doubled(cls, ts, tray):\n"
# A captured value of a user's function needn't be Python.
CAPTURED = "\nrates = <a table of 3 rates '''>"


@pytest.mark.parametrize(
    "docstring", ['    """Doubles."""\n', "    r'''Doubles\n\n    twice.\n    '''\n\n", "    'a' \\\n    'b'\n"]
)
def test_a_docstring_of_an_extractor_is_no_part_of_its_identity(docstring: str) -> None:
    def of(text: str) -> bytes:
        found = PythonExtractor(
            name="doubled",
            inputs=("T.tray",),
            outputs=("T.twice",),
            datasets=(),
            version=1,
            source_code=text,
            pickled=b"",
        )
        return extractor_fingerprint(found)

    assert of(HEAD + docstring + BODY + CAPTURED) == of(HEAD + BODY + CAPTURED)
    assert of(HEAD + docstring + BODY) != of(HEAD + docstring + "    return tray * 3\n")
    # A text that something is done with is no docstring.
    assert of(HEAD + "    'a'.strip()\n" + BODY) != of(HEAD + BODY)
    assert of(HEAD + "    f'{tray}'\n" + BODY) != of(HEAD + BODY)
    # Texts that aren't Python have identities, too.
    assert len({of("<function f 12>"), of(""), of("def f(:\n  'x"), of("lambda x: x")}) == 4
