# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, call-arg, misc"
import decimal
import math
from datetime import date, datetime
from typing import Annotated, Any, Dict, List, Optional, Union

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from caraway.dtypes import Decimal, Embedding, Window, between, oneof, regex, struct
from caraway.dtypes.annotations import annotation_of, dtype_of
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    RegexType,
    StructType,
    optional,
)
from caraway.dtypes.values import cast
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError
from tests.unit.graph.random_graphs import dtypes
from tests.unit.refusals import check


def row(ids: str, *case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.spec(*[f"types:{row}" for row in ids.split()]))


@struct
class A:
    x: int


@struct
class B:
    a: Optional[A]
    tags: List[str]


@pytest.mark.parametrize(
    ("annotation", "dtype"),
    [
        row("2:1", int, INT),
        row("2:1", np.int64, INT),
        row("2:1", pd.Int64Dtype, INT),
        row("2:1", pd.Int64Dtype(), INT),
        row("2:2", float, FLOAT),
        row("2:2", np.float64, FLOAT),
        row("2:3", bool, BOOL),
        row("2:3", pd.BooleanDtype, BOOL),
        row("2:4", str, STRING),
        row("2:4", np.str_, STRING),
        row("2:4", pd.StringDtype, STRING),
        row("2:5", bytes, BYTES),
        row("2:6", datetime, DATETIME),
        row("2:6", np.datetime64, DATETIME),
        row("2:7", date, DATE),
        row("2:8 2b:8", Decimal[2], DecimalType(2)),
        row("2:9 2b:8", Embedding[8], EmbeddingType(8)),
        row("2:10", List[int], ListType(INT)),
        row("2:10", list[Optional[int]], ListType(optional(INT))),
        row("2:11", Dict[str, float], MapType(FLOAT)),
        row("2:11", dict[str, list[int]], MapType(ListType(INT))),
        row("2:12", Optional[int], optional(INT)),
        row("2:12 2b:5", int | None, optional(INT)),
        row("2:12 2b:5", Union[None, int], optional(INT)),
        row("2:12", Optional[Optional[int]], optional(INT)),  # noqa: PYI016 (once more)
        # T9: descriptors are hashable.
        row("2:12 2b:9", Optional[Decimal[2]], optional(DecimalType(2))),
        row("2:12 2b:5 2b:9", Decimal[2] | None, optional(DecimalType(2))),
        row("2:12 2b:9", Optional[between(int, 0, 5)], optional(BetweenType(INT, 0, 5))),
        row(
            "2:10 4b:7",
            list[between(float, 0, 1, strict_min=True)],
            ListType(BetweenType(FLOAT, 0.0, 1.0, strict_min=True)),
        ),
        row("2:15 4:3", oneof(str, ["a", "b"]), OneOfType(STRING, ("a", "b"))),
        row("2:15 4:1", regex("a+"), RegexType("a+")),
        row("2:13", A, StructType("A", (("x", INT),))),
        row("2:13", B, StructType("B", (("a", optional(StructType("A", (("x", INT),)))), ("tags", ListType(STRING))))),
        row("2:14", Window, StructType("Window", (("begin", DATETIME), ("end", DATETIME)))),
    ],
)
def test_annotations(annotation: Any, dtype: DataType) -> None:
    assert dtype_of(annotation) == dtype
    assert dtype_of(annotation_of(dtype)) == dtype


@given(dtype=dtypes)
def test_every_type_has_an_annotation(dtype: DataType) -> None:
    # A struct without a class keeps its type as the annotation.
    if "StructType" not in repr(dtype):
        assert dtype_of(annotation_of(dtype)) == dtype
        assert dtype_of(annotation_of(dtype, pandas=True)) == dtype


@pytest.mark.spec("types:2b:8", "types:2b:9")
def test_equal_descriptors_are_equal_and_hashable() -> None:
    assert Embedding[8] == Embedding[8] != Embedding[9]
    assert Decimal[2] == Decimal[2] != Decimal[3]
    assert len({Decimal[2], Decimal[2], between(int, 0, 5), between(int, 0, 5)}) == 2
    assert Optional[Decimal[2]] == Optional[Decimal[2]]


@pytest.mark.spec("types:4b:1", "types:4b:5", "types:4:2")
def test_restrictions_take_arguments_by_place_or_name() -> None:
    by_name = between(dtype=int, min=1, max=9, strict_min=True, strict_max=False)
    assert by_name == between(int, 1, 9, True, False) == BetweenType(INT, 1, 9, strict_min=True)
    assert oneof(dtype=str, options=["a"]) == oneof(str, ["a"])
    assert regex(pattern="a") == regex("a")
    assert between(float, 0, 1) == between(float, 0.0, 1.0)
    # Narrow intervals that hold a value.
    assert between(int, 5, 5) == BetweenType(INT, 5, 5)
    assert between(int, 5, 6, strict_min=True) == BetweenType(INT, 5, 6, strict_min=True)
    assert between(float, 5, 6, strict_min=True, strict_max=True).minimum == 5.0
    assert between(float, 0, math.inf).maximum == math.inf
    with pytest.raises(TypeError, match="min_strict"):
        between(int, 1, 9, min_strict=True)


@pytest.mark.spec("types:4b:6")
def test_a_nullable_restriction_is_an_optional() -> None:
    assert dtype_of(Optional[oneof(str, ["a"])]) == optional(OneOfType(STRING, ("a",)))
    with pytest.raises(DefinitionTypeError, match="oneof"):
        oneof(Optional[str], ["a", None])


@pytest.mark.spec("types:4b:9", "types:4:1")
def test_a_pattern_matches_the_whole_text_as_pythons_re_does() -> None:
    check = cast(dtype_of(regex(r"\d{2}|x")))
    assert [check(text) for text in ("12", "x")] == ["12", "x"]
    for text in ("123", "a12", "12\n", "xx"):
        with pytest.raises(InvalidInputError, match="regex"):
            check(text)


@pytest.mark.parametrize(
    ("annotation", "plain"),
    [
        (Annotated[int, between(int, 0, 9)], between(int, 0, 9)),
        (Annotated[float, between(float, 0, 9, strict_max=True)], between(float, 0, 9, strict_max=True)),
        (Annotated[str, oneof(str, ["a", "b"])], oneof(str, ["a", "b"])),
        (Annotated[int, oneof(int, [1, 2])], oneof(int, [1, 2])),
        (Annotated[str, regex("[a-z]+")], regex("[a-z]+")),
        (Annotated[decimal.Decimal, Decimal[2]], Decimal[2]),
        (Annotated[list[float], Embedding[8]], Embedding[8]),
        (Annotated[List[float], Embedding[8]], Embedding[8]),
        (Optional[Annotated[int, between(int, 0, 9)]], Optional[between(int, 0, 9)]),
        (Annotated[int, between(int, 0, 9)] | None, Optional[between(int, 0, 9)]),
        (List[Annotated[str, regex("[a-z]+")]], List[regex("[a-z]+")]),
        (Dict[str, Annotated[decimal.Decimal, Decimal[2]]], Dict[str, Decimal[2]]),
        (Annotated[int, "for people", between(int, 0, 9)], between(int, 0, 9)),
        (Annotated[Optional[int], "for people"], Optional[int]),
    ],
)
def test_a_type_in_annotated_is_that_type(annotation: Any, plain: Any) -> None:
    assert dtype_of(annotation) == dtype_of(plain)


@pytest.mark.parametrize(
    ("annotation", "error", "facts"),
    [
        (Annotated[str, between(int, 0, 9)], DefinitionTypeError, "str|between(int|goes with int"),
        (Annotated[Optional[int], between(int, 0, 9)], DefinitionTypeError, "Optional[int]|goes with int"),
        (Annotated[float, Decimal[2]], DefinitionTypeError, "float|Decimal[2]|goes with Decimal"),
        (Annotated[list[int], Embedding[8]], DefinitionTypeError, "list[int]|goes with list[float]"),
        (Annotated[int, between(int, 0, 9), oneof(int, [1])], DefinitionError, "one type|between|oneof"),
        (Annotated[complex, "for people"], DefinitionTypeError, "complex"),
    ],
)
def test_what_annotated_says_must_fit(annotation: Any, error: type[Exception], facts: str) -> None:
    check(lambda: dtype_of(annotation), error, facts)


def test_the_fields_of_a_struct_may_be_annotated() -> None:
    @struct
    class Rating:
        stars: Annotated[int, between(int, 1, 5)]
        text: Annotated[str, "for people"]

    assert dtype_of(Rating) == StructType("Rating", (("stars", dtype_of(between(int, 1, 5))), ("text", STRING)))
