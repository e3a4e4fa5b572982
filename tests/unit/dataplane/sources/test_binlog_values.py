"""Values of a binary log whose form differs from that in a query, also those that the server of the tests hasn't."""

from datetime import datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE

from caraway.dataplane.sources.cdc.mysql.values import ZERO_DATE, Kinds, codec, reading

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (MySQL's times have no zone)
NAME = "seen"


def row(
    dtype: int, value: object, *, source: str = NONE_SOURCE.NULL, key: tuple[str, ...] = (), **kinds: Any
) -> object:
    """Return the value of a column of the log."""
    column = SimpleNamespace(name=NAME, type=dtype, enum_values=None, set_values=["a", "b"], max_length=4)
    found = reading([column], [33], Kinds(charsets={33: "latin1"}, **kinds), key, is_mariadb=True)
    return found.row({NAME: value}, {} if value is not None else {NAME: source})[NAME]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        # The library reads the seconds with a sign; MariaDB has timestamps up to 2106 since 11.5.
        (FIELD_TYPE.TIMESTAMP2, EPOCH - timedelta(seconds=1 << 31), EPOCH + timedelta(seconds=1 << 31)),
        (FIELD_TYPE.TIMESTAMP2, EPOCH - timedelta(seconds=1), EPOCH + timedelta(seconds=(1 << 32) - 1)),
        (FIELD_TYPE.TIMESTAMP2, EPOCH, ZERO_DATE),
        (FIELD_TYPE.TIMESTAMP2, EPOCH + timedelta(seconds=1), EPOCH + timedelta(seconds=1)),
        # The library has 57 s less 0.7 s.
        (FIELD_TYPE.TIME2, -timedelta(seconds=56.3), str(-timedelta(seconds=56.7))),
        (FIELD_TYPE.TIME2, -timedelta(seconds=57), str(-timedelta(seconds=57))),
        (FIELD_TYPE.TIME2, timedelta(seconds=56.3), str(timedelta(seconds=56.3))),
        (FIELD_TYPE.YEAR, 1900, 0),
        (FIELD_TYPE.BIT, "0101", 5),
        (FIELD_TYPE.SET, {"b", "a"}, "a,b"),
        (FIELD_TYPE.VARCHAR, "\x80\x81", "€\x81"),
        (FIELD_TYPE.JSON, {b"at": [datetime(2024, 5, 1, 12), time(1, 2, 3), Decimal("1.5"), b"x"]}, None),  # noqa: DTZ001
    ],
)
def test_values_have_the_form_of_a_query(dtype: int, value: object, expected: object) -> None:
    if dtype == FIELD_TYPE.JSON:
        expected = {"at": ["2024-05-01 12:00:00.000000", "01:02:03.000000", 1.5, "x"]}
    assert row(dtype, value) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (NONE_SOURCE.NULL, None),
        (NONE_SOURCE.EMPTY_SET, ""),
        (NONE_SOURCE.OUT_OF_DATE_RANGE, ZERO_DATE),
        (NONE_SOURCE.OUT_OF_DATETIME2_RANGE, ZERO_DATE),
    ],
)
def test_what_the_library_leaves_out_is_told_apart_from_null(source: str, expected: object) -> None:
    assert row(FIELD_TYPE.DATE, None, source=source) == expected


def test_columns_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ValueError, match="primary key has a zero date"):
        row(FIELD_TYPE.DATE, None, source=NONE_SOURCE.OUT_OF_DATE_RANGE, key=(NAME,))
    with pytest.raises(ValueError, match="MODIFY` it"):
        row(FIELD_TYPE.DATETIME, EPOCH)
    column = SimpleNamespace(name=NAME, type=FIELD_TYPE.VARCHAR)
    with pytest.raises(ValueError, match="character set dec8"):
        reading([column], [3], Kinds(charsets={3: "dec8"}), (), is_mariadb=False)
    assert codec("swe7") is None


def test_names_in_other_character_sets_are_those_of_the_table() -> None:
    column = SimpleNamespace(name=NAME, type=FIELD_TYPE.SET, enum_values=["", ""], set_values=[""])
    found = reading([column], [], Kinds(names={NAME: ["ü", "o"]}), (), is_mariadb=False)
    assert (column.enum_values, column.set_values) == (["", "ü", "o"], ["ü", "o"])
    assert found.row({NAME: {"o", "ü"}}, {}) == {NAME: "ü,o"}
