# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, misc"
from datetime import date, datetime
from typing import Any, Dict, List, Optional, Union  # noqa: UP035 (what users write)

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
from caraway.errors import DefinitionError, DefinitionTypeError
from tests.unit.graph.random_graphs import dtypes


class Plain:
    pass


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
        (int, INT),
        (np.int64, INT),
        (pd.Int64Dtype, INT),
        (pd.Int64Dtype(), INT),
        (float, FLOAT),
        (np.float64, FLOAT),
        (bool, BOOL),
        (pd.BooleanDtype, BOOL),
        (str, STRING),
        (np.str_, STRING),
        (pd.StringDtype, STRING),
        (bytes, BYTES),
        (datetime, DATETIME),
        (np.datetime64, DATETIME),
        (date, DATE),
        (Decimal[2], DecimalType(2)),
        (Embedding[8], EmbeddingType(8)),
        (List[int], ListType(INT)),
        (list[Optional[int]], ListType(optional(INT))),
        (Dict[str, float], MapType(FLOAT)),
        (dict[str, list[int]], MapType(ListType(INT))),
        (Optional[int], optional(INT)),
        (int | None, optional(INT)),
        (Union[None, int], optional(INT)),
        (Optional[Optional[int]], optional(INT)),  # noqa: PYI016 (once more)
        # T9: descriptors are hashable.
        (Optional[Decimal[2]], optional(DecimalType(2))),
        (Decimal[2] | None, optional(DecimalType(2))),
        (Optional[between(int, 0, 5)], optional(BetweenType(INT, 0, 5))),
        (list[between(float, 0, 1, strict_min=True)], ListType(BetweenType(FLOAT, 0.0, 1.0, strict_min=True))),
        (oneof(str, ["a", "b"]), OneOfType(STRING, ("a", "b"))),
        (regex("a+"), RegexType("a+")),
        (A, StructType("A", (("x", INT),))),
        (B, StructType("B", (("a", optional(StructType("A", (("x", INT),)))), ("tags", ListType(STRING))))),
        (Window, StructType("Window", (("begin", DATETIME), ("end", DATETIME)))),
    ],
)
def test_annotations(annotation: Any, dtype: DataType) -> None:
    assert dtype_of(annotation) == dtype
    assert dtype_of(annotation_of(dtype)) == dtype


@given(dtype=dtypes)
def test_every_type_has_an_annotation(dtype: DataType) -> None:
    # A struct that no class stands for keeps its type as the annotation.
    if "StructType" not in repr(dtype):
        assert dtype_of(annotation_of(dtype)) == dtype
        assert dtype_of(annotation_of(dtype, pandas=True)) == dtype


@pytest.mark.parametrize(
    "annotation",
    [
        Union[int, str],
        Union[int, str, None],
        dict[int, str],
        list,
        dict,
        tuple,
        set,
        Any,
        object,
        Plain,
        "int",
        None,
        np.int32,
    ],
)
def test_t4_what_is_no_type(annotation: Any) -> None:
    with pytest.raises((DefinitionError, DefinitionTypeError)):
        dtype_of(annotation)


def test_two_structs_in_a_union_are_a_type_error() -> None:
    with pytest.raises(DefinitionTypeError, match=r"A.*B"):
        dtype_of(Union[A, B])


@pytest.mark.parametrize("scale", [0, 29, -1, 1.5, True, "2"])
def test_t7_the_scale_of_a_decimal(scale: Any) -> None:
    with pytest.raises(DefinitionTypeError, match="1 to 28"):
        Decimal[scale]


@pytest.mark.parametrize("dim", [0, -1, 1.5, True])
def test_t8_the_dimension_of_an_embedding(dim: Any) -> None:
    with pytest.raises(DefinitionTypeError, match="positive"):
        Embedding[dim]


def test_t6_descriptors_are_not_called() -> None:
    with pytest.raises(DefinitionTypeError, match=r"Decimal\[2\]"):
        Decimal(2)
    with pytest.raises(DefinitionTypeError, match=r"Embedding\[8\]"):
        Embedding(8)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: between(str, 0, 1), DefinitionTypeError),
        (lambda: between(int, 0, 1.0), DefinitionTypeError),
        (lambda: between(int, False, 1), DefinitionTypeError),  # noqa: FBT003 (the API's signature)
        (lambda: between(int, 2, 1), DefinitionError),
        (lambda: oneof(float, [1.0]), DefinitionTypeError),
        (lambda: oneof(int, [True]), DefinitionTypeError),
        (lambda: oneof(int, ["1"]), DefinitionTypeError),
        (lambda: oneof(int, []), DefinitionError),
        (lambda: regex(3), DefinitionTypeError),
        (lambda: regex("("), DefinitionError),
    ],
)
def test_r2_r3_restrictions_are_checked(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
