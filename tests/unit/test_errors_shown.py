"""The part of foreign texts that messages contain."""

import pytest

from caraway.compute.query.inputs import cast_input
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, ListType, MapType, optional
from caraway.dtypes.values import INPUTS, ROWS, cast
from caraway.errors import InvalidInputError, quoted, shortened

LONG = "x" * 2_000_000


def test_short_texts_stay_as_they_are() -> None:
    assert (shortened("abc"), quoted("abc"), quoted([1, "a"]), quoted(1.5)) == ("abc", "'abc'", "[1, 'a']", "1.5")


@pytest.mark.parametrize("value", [LONG, [LONG] * 1_000, {LONG: LONG}, [[[[[[LONG]]]]]], LONG.encode()])
def test_large_values_are_shown_in_part(value: object) -> None:
    assert len(quoted(value)) < 10_000
    for dtype in (INT, FLOAT, DATETIME, ListType(INT), MapType(INT)):
        with pytest.raises(InvalidInputError) as refused:
            cast(dtype)(value)
        assert len(str(refused.value)) < 2_000


def test_a_number_of_too_many_digits_is_replaced_by_its_size() -> None:
    huge = 10**5_000
    assert quoted(huge) == f"a number of {huge.bit_length():,} bits"
    for dtype in (INT, FLOAT, DATETIME):
        with pytest.raises(InvalidInputError):
            cast(dtype)(huge)
    with pytest.raises(InvalidInputError, match="expected datetime"):
        cast(DATETIME)("9" * 5_000)


@pytest.mark.parametrize("value", [1.5, 2, True])
def test_text_over_http_is_no_number(value: object) -> None:
    for manner in (ROWS, INPUTS):
        for dtype in (STRING, optional(STRING)):
            with pytest.raises(InvalidInputError, match="expected str"):
                cast(dtype, manner)(value)
        with pytest.raises(InvalidInputError, match="expected str"):
            cast(ListType(STRING), manner)([value])
    assert isinstance(cast(STRING)(value), str)


def test_floats_in_answers_can_be_given_again() -> None:
    inf = float("inf")
    (nan, above, below, none) = cast_input("A.x", optional(FLOAT), ["NaN", "Infinity", "-Infinity", None])
    assert nan != nan  # noqa: PLR0124 (NaN only)
    assert (above, below, none) == (inf, -inf, None)
    (again,) = cast_input("A.x", ListType(FLOAT), [["NaN", 1]])
    assert isinstance(again, list)
    assert again[0] != again[0]
    with pytest.raises(InvalidInputError, match="expected float"):
        cast(FLOAT)("NaN")
