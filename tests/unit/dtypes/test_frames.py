# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="comparison-overlap, misc"
import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes import Decimal, Window
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.frames import to_series
from caraway.dtypes.instants import instant_us
from caraway.dtypes.series import to_series as user_series
from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, DataType, optional
from caraway.errors import InvalidInputError


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


def test_instants_beyond_pandas_are_told_not_wrapped_around() -> None:
    us = instant_us("1500-01-01")
    last = 2**63 // 1000 - 1
    for make in (to_series, lambda v, t, n: user_series(v, t, name=n, index=pd.RangeIndex(len(v)))):
        with pytest.raises(InvalidInputError, match=r"1500-01-01T00:00:00Z is beyond the timestamps of pandas"):
            make([0, us, None], optional(DATETIME), "x")
        with pytest.raises(InvalidInputError, match="beyond the timestamps"):
            make([2**62], DATETIME, "x")
        series = make([last, -last, None], optional(DATETIME), "x")
        assert [series[0].value // 1000, series[1].value // 1000, series.isna()[2]] == [last, -last, True]


@given(
    st.sampled_from([(INT, "Int64"), (FLOAT, "Float64"), (BOOL, "boolean")]),
    st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(1 << 63), (1 << 63) - 1)
        | st.floats()
        | st.sampled_from([0, 1, 0.0, -0.0, math.nan, math.inf])
    ),
)
def test_numbers_are_the_arrays_that_pandas_makes(typed: tuple[DataType, str], values: list[object]) -> None:
    dtype, nullable = typed
    try:
        expected: Any = pd.array(values, dtype=nullable)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return
    found = to_series(values, dtype)
    pd.testing.assert_series_equal(found, pd.Series(expected))
    assert [str(value) for value in found] == [str(value) for value in expected]
