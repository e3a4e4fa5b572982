# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="comparison-overlap, misc"
from typing import Any

import pandas as pd
import pytest

from caraway.dtypes import Decimal, Window
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.frames import to_series
from caraway.dtypes.types import DATETIME, optional


@pytest.mark.parametrize(
    ("annotation", "stored", "dtype"),
    [
        # Featuresets 5.4.
        (int, 2**60 + 1, "Int64"),
        (float, 0.5, "Float64"),
        (bool, True, "boolean"),
        (str, "a", "string"),
        (Decimal[2], "1.50", "object"),
        (list[int], [1, 2], "object"),
        (Window, [0, 1], "object"),
    ],
)
def test_columns_are_nullable(annotation: Any, stored: Any, dtype: str) -> None:
    series = to_series([stored, None], optional(dtype_of(annotation)), "x")
    assert (series.dtype, series.name) == (dtype, "x")
    assert series[1] is pd.NA


def test_instants_are_utc_and_nat() -> None:
    series = to_series([1, None], optional(DATETIME))
    assert str(series.dtype) == "datetime64[ns, UTC]"
    assert series[0] == pd.Timestamp("1970-01-01T00:00:00.000001Z")
    assert series[1] is pd.NaT
    assert str(to_series([], DATETIME).dtype) == "datetime64[ns, UTC]"
