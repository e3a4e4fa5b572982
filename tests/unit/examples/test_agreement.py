import math

import pandas as pd
import pytest

from caraway.apps.demo.agreement import Disagreement, compare


def _compare(served: object, expected: object) -> str:
    agreement = compare(
        pd.DataFrame({"F.x": pd.Series([served])}), pd.DataFrame({"F.x": pd.Series([expected], dtype=object)}), ["A"]
    )
    assert agreement.total == 1
    return "identical" if agreement.identical else "close" if agreement.close else "wrong"


@pytest.mark.parametrize("null", [None, pd.NA, pd.NaT, math.nan])
def test_all_nulls_are_one(null: object) -> None:
    assert _compare(null, None) == "identical"
    assert _compare(null, 0) == "wrong"


@pytest.mark.parametrize(
    ("served", "expected", "outcome"),
    [
        (1, 1, "identical"),
        (1, 2, "wrong"),
        (1, 1.0, "wrong"),
        (True, 1, "wrong"),
        ("a", "a", "identical"),
        ("a", "b", "wrong"),
        (0.1 + 0.2, 0.3, "close"),
        (0.3, 0.3, "identical"),
        (0.3, 0.3000001, "wrong"),
        (1e-12, 0.0, "wrong"),
    ],
)
def test_values_agree_to_the_bit_or_closely(served: object, expected: object, outcome: str) -> None:
    assert _compare(served, expected) == outcome


def test_typed_columns_give_python_s_values() -> None:
    served = pd.DataFrame({"F.i": pd.array([1, None], dtype="Int64"), "F.s": pd.array(["x", None], dtype="string")})
    expected = pd.DataFrame({"F.i": [1, 2], "F.s": ["x", None]}, dtype=object)
    agreement = compare(served, expected, ["A", "B"])
    assert agreement.identical == 3
    assert agreement.disagreements == (Disagreement(flight="B", feature="F.i", served=None, expected=2),)
    assert str(agreement.disagreements[0]) == "F.i of flight B: served None, expected 2"


def test_other_features_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\['F.x', 'F.y'\]"):
        compare(pd.DataFrame({"F.x": [1]}), pd.DataFrame({"F.y": [1]}), ["A"])
