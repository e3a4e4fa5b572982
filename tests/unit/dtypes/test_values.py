# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="misc"
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal as Number
from typing import Any, Optional

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes import Decimal, Embedding, Window, between, oneof, regex
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.decoding import decode, from_json, to_json
from caraway.dtypes.strictness import conforms
from caraway.dtypes.types import DATETIME, FLOAT, INT
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_704_110_400_000_000

ACCEPTED: list[tuple[Any, Any, Any]] = [
    # Types 6.2, row by row: type, value, stored form.
    (int, 3, 3),
    (int, np.int32(3), 3),
    (int, 4.0, 4),
    (int, "12", 12),
    (int, "12.0", 12),
    (int, True, 1),
    (int, -(2**63), -(2**63)),
    (float, 1, 1.0),
    (float, np.float32(0.5), 0.5),
    (float, math.inf, math.inf),
    (float, "1.5", 1.5),
    (float, "Infinity", math.inf),
    (float, False, 0.0),
    (bool, True, True),
    (bool, np.bool_(False), False),  # noqa: FBT003 (the API's signature)
    (bool, 2, True),
    (bool, "TRUE", True),
    (str, "", ""),
    (str, True, "true"),
    (str, 1.5, "1.5"),
    (str, 7, "7"),
    (str, "é".encode(), "é"),
    (bytes, b"a", b"a"),
    (bytes, "é", "é".encode()),
    (bytes, {"base64": "/w=="}, b"\xff"),
    (date, date(1970, 1, 2), 1),
    (date, NOON, 19_723),
    (date, "1969-12-31", -1),
    (Decimal[2], Number("1.20"), "1.20"),
    (Decimal[2], 3, "3.00"),
    (Decimal[2], 1.255, "1.25"),
    (Decimal[2], "-0.00", "0.00"),
    (Decimal[10], Number("1E-10"), "0.0000000001"),
    (Optional[int], None, None),
    (Optional[int], pd.NA, None),
    (Optional[float], math.nan, None),
    (Optional[datetime], pd.NaT, None),
    (Optional[int], "5", 5),
    # Types 6.3.
    (datetime, NOON, NOON_US),
    (datetime, NOON.replace(tzinfo=None), NOON_US),
    (datetime, NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), NOON_US),
    (datetime, pd.Timestamp("2024-01-01T12:00:00.123456789Z"), NOON_US + 123_456),
    (datetime, np.datetime64("2024-01-01T12:00:00"), NOON_US),
    (datetime, date(2024, 1, 1), NOON_US - 43_200_000_000),
    (datetime, 1_704_110_400, NOON_US),
    (datetime, 1_704_110_400.9, NOON_US),
    (datetime, 1_704_110_400_000, NOON_US),
    (datetime, 1_704_110_400_000_000, NOON_US),
    (datetime, 1_704_110_400_000_000_999, NOON_US),
    (datetime, "1704110400", NOON_US),
    (datetime, -1, -1_000_000),
    (datetime, "2024-01-01T12:00:00Z", NOON_US),
    (datetime, "2024-01-01 17:30:00.000001+05:30", NOON_US + 1),
    (datetime, "2024-01-01", NOON_US - 43_200_000_000),
    (datetime, "Mon, 01 Jan 2024 12:00:00 GMT", NOON_US),
    # Types 6.4.
    (list[int], (1, "2"), [1, 2]),
    (list[Optional[int]], [None, 1], [None, 1]),
    (list[float], np.array([1.0]), [1.0]),
    (dict[str, int], {"b": 1, "a": 2}, {"a": 2, "b": 1}),
    (dict[str, int], [("a", 1)], {"a": 1}),
    (Embedding[2], [1, 2], [1.0, 2.0]),
    (Window, Window(NOON, NOON), [NOON_US, NOON_US]),
    (Window, {"begin": NOON, "end": "2024-01-01T12:00:00Z", "more": 1}, [NOON_US, NOON_US]),
    # Types 4.
    (between(int, 0, 5), 5, 5),
    (between(float, 0, 1, strict_min=True), 0.5, 0.5),
    (oneof(str, ["a"]), "a", "a"),
    (regex("a+"), "aa", "aa"),
]

REFUSED: list[tuple[Any, Any]] = [
    (int, 1.5),
    (int, "x"),
    (int, "1.5"),
    (int, 2**63),
    (int, "1e30"),
    (int, "1_0"),
    (int, None),
    (int, math.nan),
    (int, [1]),
    (float, None),
    (float, math.nan),
    (float, "nan"),
    (float, "x"),
    (float, 10**400),
    (bool, "yes"),
    (bool, None),
    (str, None),
    (str, b"\xff"),
    (bytes, 3),
    (bytes, None),
    (date, 3),
    (date, "01/02/2024"),
    (date, None),
    (datetime, "soon"),
    (datetime, None),
    (datetime, True),
    (datetime, 2**70),
    (Decimal[2], Number("1.234")),
    (Decimal[2], "x"),
    (Decimal[2], Number(10) ** 27),
    (Decimal[2], True),
    (Decimal[2], None),
    (list[int], 3),
    (list[int], [None]),
    (list[int], [1.5]),
    (dict[str, int], {1: 1}),
    (dict[str, int], {"a": None}),
    (dict[str, int], 3),
    (Embedding[2], [1.0]),
    (Window, {"begin": NOON}),
    (Window, 3),
    (between(int, 0, 5), 6),
    (between(int, 0, 5, strict_max=True), 5),
    (between(float, 0, 1, strict_min=True), 0),
    (oneof(int, [1]), 2),
    (regex("a+"), "aab"),
    (regex("a+"), "baa"),
]


@pytest.mark.parametrize(("annotation", "value", "stored"), ACCEPTED)
def test_casting(annotation: Any, value: Any, stored: Any) -> None:
    found = cast(dtype_of(annotation))(value)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(("annotation", "value"), REFUSED)
def test_refusals_name_what_was_expected_and_found(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"expected .*found"):
        cast(dtype_of(annotation))(value)


@pytest.mark.parametrize(("annotation", "stored"), [(a, s) for a, _, s in ACCEPTED])
def test_what_is_stored_survives_json_and_python(annotation: Any, stored: Any) -> None:
    dtype = dtype_of(annotation)
    assert from_json(dtype)(to_json(dtype)(stored)) == stored
    if stored is not None:
        assert cast(dtype)(decode(dtype)(stored)) == stored


@given(value=st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001 (naive on purpose)
def test_instants_keep_their_microseconds(value: datetime) -> None:
    stored = cast(DATETIME)(value)
    assert decode(DATETIME)(stored) == value.replace(tzinfo=UTC)
    assert cast(DATETIME)(to_json(DATETIME)(stored)) == stored


@given(value=st.one_of(st.none(), st.text(), st.floats(), st.integers(), st.binary(), st.lists(st.integers())))
def test_any_value_is_cast_or_refused(value: Any) -> None:
    for annotation, _ in REFUSED:
        try:
            cast(dtype_of(annotation))(value)
        except InvalidInputError:
            continue


def test_json_has_words_for_what_it_lacks() -> None:
    assert [to_json(FLOAT)(value) for value in (math.inf, -math.inf, math.nan)] == ["Infinity", "-Infinity", "NaN"]
    assert math.isnan(from_json(FLOAT)("NaN"))
    assert to_json(DATETIME)(NOON_US) == "2024-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        # Featuresets 2.3: defaults are of the very type.
        (int, 0, True),
        (int, 0.0, False),
        (int, True, False),
        (float, 1, False),
        (float, 1.0, True),
        (str, 0.0, False),
        (Optional[int], None, True),
        (list[int], [1, 2], True),
        (list[int], (1, 2), False),
        (dict[str, int], {"a": 1}, True),
        (between(int, 0, 1), 2, False),
        (Decimal[2], Number("1.234"), False),
        (Decimal[2], 1, True),
        (Embedding[2], [1.0], False),
        (Window, {"begin": NOON, "end": NOON}, True),
        (Window, {"begin": NOON}, False),
        (datetime, "2024-01-01", False),
        (date, date(2024, 1, 1), True),
        (bytes, "a", False),
        (bool, 1, False),
        (regex("a"), "b", False),
    ],
)
def test_conformance_converts_nothing(annotation: Any, value: Any, expected: bool) -> None:  # noqa: FBT001
    assert conforms(value, dtype_of(annotation)) is expected


def test_casts_are_compiled_once() -> None:
    assert cast(INT) is cast(INT)
