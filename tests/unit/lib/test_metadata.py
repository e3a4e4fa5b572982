"""Thresholds of drift in the metadata of features: checked at the definition, and no part of its identity."""

import math
from typing import Any

import pytest

from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.featuresets import feature, featureset
from caraway.graph.drift import DEFAULT_DRIFT
from caraway.graph.fingerprints import featureset_fingerprint
from caraway.lib import Drift, meta


def users(drift: Drift | None) -> Any:
    @meta(owner="a@b.example", drift=Drift(mean=2.0))
    @featureset
    class Users:
        id: int
        score: float = feature().meta(drift=drift)

    return Users


def test_thresholds_of_a_feature_are_kept_and_change_no_identity() -> None:
    spec = users(Drift(psi=0.5, missing=math.inf)).to_spec()
    assert spec.metadata.drift == Drift(mean=2.0)
    assert spec.features[1].metadata.drift == Drift(psi=0.5, missing=math.inf)
    assert featureset_fingerprint(spec) == featureset_fingerprint(users(None).to_spec())


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
