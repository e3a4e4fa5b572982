# mypy: disable-error-code="arg-type, call-arg, misc, type-arg, valid-type"
"""Tests of wrong types, windows and values: the class of the exception, and the facts in its message."""

import decimal
from collections.abc import Callable
from datetime import datetime
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
import pytest

from caraway import dataset, field
from caraway.dtypes import Decimal, Embedding, between, oneof, regex, struct
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.durations import parse_duration
from caraway.dtypes.values import cast
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError
from tests.unit.refusals import check


class Plain:
    x: int


@struct
class Point:
    x: int
    y: Optional[between(float, 0, 1)]


def to(annotation: Any, value: Any) -> Callable[[], Any]:
    return lambda: cast(dtype_of(annotation))(value)


def of(annotation: Any) -> Callable[[], Any]:
    return lambda: dtype_of(annotation)


def optional_key() -> None:
    @dataset
    class Keyed:
        user: Optional[int] = field(key=True)
        at: datetime = field(timestamp=True)


MISTAKES: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    # Annotations.
    ("2b:4", of(Union[int, str]), DefinitionError, "int|str|Optional"),
    ("2b:4", of(Union[int, str, None]), DefinitionError, "union|None"),
    ("2b:4", of(int | str), DefinitionError, "int|str|Optional"),
    ("2b:4", of(list), DefinitionTypeError, "list|List[T]"),
    ("2b:4", of(dict), DefinitionTypeError, "dict|Dict[str, T]"),
    ("2b:4", of(List), DefinitionTypeError, "List"),
    ("2b:4", of(Dict), DefinitionTypeError, "Dict"),
    ("2b:4", of(tuple), DefinitionTypeError, "tuple"),
    ("2b:4", of(Tuple[int, int]), DefinitionTypeError, "Tuple[int, int]"),
    ("2b:4", of(set), DefinitionTypeError, "set"),
    ("2b:4", of(set[int]), DefinitionTypeError, "set[int]"),
    ("2b:4", of(Any), DefinitionTypeError, "Any"),
    ("2b:4", of(object), DefinitionTypeError, "object"),
    ("2b:4", of(decimal.Decimal), DefinitionTypeError, "Decimal|Decimal[n]"),
    ("2b:4", of(Plain), DefinitionTypeError, "Plain|@struct"),
    ("2b:4", of(List[Plain]), DefinitionTypeError, "Plain"),
    ("2b:4", of(np.int32), DefinitionTypeError, "int32"),
    ("2b:4", of(None), DefinitionTypeError, "None"),
    ("2b:4", of("int"), DefinitionTypeError, "int"),
    ("2b:4", of(Decimal), DefinitionTypeError, "Decimal"),
    ("2:11", of(Dict[int, str]), DefinitionError, "keys|str|int"),
    ("2b:6", lambda: Decimal(3), DefinitionTypeError, "Decimal[2]"),
    ("2b:6", lambda: Embedding(3), DefinitionTypeError, "Embedding[8]"),
    ("2b:7", lambda: Decimal[0], DefinitionTypeError, "Decimal[0]|1 to 28"),
    ("2b:7", lambda: Decimal[29], DefinitionTypeError, "Decimal[29]|1 to 28"),
    ("2b:7", lambda: Decimal[-1], DefinitionTypeError, "Decimal[-1]"),
    *(("2b:7", lambda n=n: Decimal[n], DefinitionTypeError, f"Decimal[{n!r}]|1 to 28") for n in (1.5, True, "2")),
    *(("2b:8", lambda n=n: Embedding[n], DefinitionTypeError, f"Embedding[{n}]|positive") for n in (0, -1, 1.5, True)),
    ("2b:10", optional_key, DefinitionError, "user|Optional"),
    # Restrictions.
    ("4b:2 4:2", lambda: between(str, 0, 1), DefinitionTypeError, "between|int or float|str"),
    ("4b:2", lambda: between(Decimal[2], 0, 1), DefinitionTypeError, "between|int or float"),
    ("4b:2", lambda: between(int, 0, 1.0), DefinitionTypeError, "between(int|1.0"),
    ("4b:2", lambda: between(int, False, 1), DefinitionTypeError, "False"),
    ("4b:2", lambda: between(float, "a", 1), DefinitionTypeError, "'a'"),
    ("4b:2 4:3", lambda: oneof(float, [1.0]), DefinitionTypeError, "oneof|int or str|float"),
    ("4b:2", lambda: oneof(int, [True]), DefinitionTypeError, "oneof(int|True"),
    ("4b:2", lambda: oneof(int, ["1"]), DefinitionTypeError, "oneof(int|'1'"),
    ("4b:2", lambda: oneof(str, ["a", 1]), DefinitionTypeError, "option 1"),
    ("4b:2 4:1", lambda: regex(3), DefinitionTypeError, "regex|int"),
    ("4b:3", lambda: between(int, 2, 1), DefinitionError, "between(int, 2, 1, False, False)|no int"),
    ("4b:3", lambda: between(int, 5, 5, strict_min=True), DefinitionError, "no int|min"),
    ("4b:3", lambda: between(int, 5, 6, strict_min=True, strict_max=True), DefinitionError, "no int|min"),
    ("4b:3", lambda: between(float, 5, 5, strict_max=True), DefinitionError, "no float|min"),
    ("4b:3", lambda: between(float, float("nan"), 1), DefinitionError, "between(float, nan, 1.0|no float"),
    ("4b:3", lambda: between(float, 0, float("nan")), DefinitionError, "nan|no float"),
    ("4b:3", lambda: between(float, 0, 10**400), DefinitionError, "too large for a float"),
    ("4b:3", lambda: oneof(int, []), DefinitionError, "no options"),
    ("4b:3", lambda: regex("("), DefinitionError, "the pattern '('|missing )|RE2"),
    ("4b:5", lambda: between(int, 0, 1, min_strict=True), TypeError, "min_strict"),
    # Durations; windows are in test_windows.
    ("7.1b:3", lambda: parse_duration(None), DefinitionTypeError, "None"),
    ("7.1b:3", lambda: parse_duration(1.5), DefinitionTypeError, "float 1.5"),
    ("7.1b:3", lambda: parse_duration(60), DefinitionTypeError, "int 60"),
    ("7.1b:3", lambda: parse_duration("60"), DefinitionTypeError, '"60"|60s'),
    ("7.1b:4", lambda: parse_duration("1x"), DefinitionError, '"1x"|"x"|minutes'),
    ("7.1b:4", lambda: parse_duration("d"), DefinitionError, 'no number before unit "d"'),
    ("7.1b:4", lambda: parse_duration("1..5h"), DefinitionError, '"1..5" is not a number'),
    ("7.1b:5", lambda: parse_duration("1d 2"), DefinitionError, '"1d 2" ends without a unit'),
    ("7.1b:5", lambda: parse_duration(" "), DefinitionError, "ends without a unit"),
    ("7.1b:1", lambda: parse_duration("1M"), DefinitionError, '"M"|w, d, h'),
    ("7.1b:2", lambda: parse_duration("-1d"), DefinitionError, '"-"'),
    ("7.1b:7", lambda: parse_duration("forever"), DefinitionError, "forever"),
    # Values that are cast.
    ("6.2:1", to(int, 1.5), InvalidInputError, "int|float 1.5"),
    ("6.2:1", to(int, 2**63), InvalidInputError, "9223372036854775808|64"),
    ("6.2:3", to(bool, "yes"), InvalidInputError, "bool|'yes'"),
    ("6.2:5", to(bytes, 3), InvalidInputError, "bytes|int 3"),
    ("6.2:8", to(Decimal[2], "1.234"), InvalidInputError, "Decimal[2]|1.234"),
    ("6.2:9 2b:2", to(Optional[List[int]], [None]), InvalidInputError, "element 0|int|null"),
    ("6.3:11", to(datetime, "soon"), InvalidInputError, "datetime|soon"),
    ("6.4:1", to(List[int], [1, 2.5]), InvalidInputError, "List[int]|element 1|2.5"),
    ("6.4:1", to(List[int], "12"), InvalidInputError, "List[int]|'12'"),
    ("6.4:2", to(Dict[str, int], {1: 2}), InvalidInputError, "Dict[str, int]|key 1"),
    ("6.4:2", to(Dict[str, int], {"a": None}), InvalidInputError, '"a"|null'),
    ("6.4:3", to(Embedding[3], [1.0]), InvalidInputError, "Embedding[3]|1 elements"),
    ("6.4:4", to(Point, {"y": 0.5}), InvalidInputError, "struct Point|field x|null"),
    ("6.4:4", to(Point, {"x": "a"}), InvalidInputError, "struct Point|field x|'a'"),
    ("6.4:4", to(Point, 3), InvalidInputError, "struct Point|int 3"),
    ("6.4:5 4b:7", to(List[Point], [{"x": 1, "y": 2.0}]), InvalidInputError, "element 0|field y|between(float"),
    ("6.4:5 4b:4", to(between(int, 0, 5, strict_min=True), 0), InvalidInputError, "between(int, 0, 5, True|0"),
]


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        pytest.param(wrong, error, facts, marks=pytest.mark.spec(*[f"types:{row}" for row in rows.split()]))
        for rows, wrong, error, facts in MISTAKES
    ],
)
def test_mistakes(wrong: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(wrong, error, facts)
