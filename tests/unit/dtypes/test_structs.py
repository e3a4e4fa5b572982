# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, attr-defined, call-arg, comparison-overlap, name-defined"
from typing import Any, List, Optional

import pandas as pd
import pytest

from caraway.dtypes import struct
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.types import INT, StructType
from caraway.dtypes.values import cast
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError
from caraway.expr import repeat
from caraway.lib import meta


@struct
class Spot:
    x: int
    y: Optional[float]


@struct
class Line:
    name: str
    points: List[Spot]


@pytest.mark.spec("types:3b:1")
def test_all_fields_are_given() -> None:
    assert Spot(1, y=None) == Spot(x=1, y=None) != Spot(1, 2.0)
    with pytest.raises(TypeError, match="y"):
        Spot(1)


@pytest.mark.spec("types:3b:2")
def test_values_are_not_checked_before_they_enter_a_dataset() -> None:
    assert Spot("a", [1]).x == "a"
    with pytest.raises(InvalidInputError, match=r"field x: expected int"):
        cast(dtype_of(Spot))(Spot("a", 1.0))


@pytest.mark.spec("types:3b:3")
def test_equality_is_structural(capsys: pytest.CaptureFixture[str]) -> None:
    @struct
    class Other:
        x: int
        y: Optional[float]
        z: str

    assert Spot(1, None) == Other(1, None, "more")
    assert Other(1, None, "more") != Spot(1, None)
    assert Spot(1, None) != 1
    assert Spot(1, None) != "x"
    assert Line("a", [Spot(1, None)]) == Line("a", [Spot(1, None)]) != Line("a", [Spot(2, None)])
    assert capsys.readouterr().out == ""


@pytest.mark.spec("types:3b:4")
def test_the_hash_is_the_objects() -> None:
    point = Spot(1, None)
    assert len({point, point, Spot(1, None)}) == 2


@pytest.mark.spec("types:3b:5")
def test_json_is_plain() -> None:
    line = Line("a", [Spot(1, y=None)])
    assert line.as_json() == {"name": "a", "points": [{"x": 1, "y": None}]}
    assert [type(point) for point in line.as_json()["points"]] == [dict]


@pytest.mark.spec("types:3b:6", "types:3b:7")
def test_expressions_of_structs() -> None:
    assert Spot.expr(x=1, y=None).typeof() is Spot
    assert Spot.zip(x=repeat(1, 2), y=repeat(1.5, 2)).typeof() == List[Spot]


@pytest.mark.spec("types:3:6", "types:3:7")
def test_what_is_no_field_is_tolerated() -> None:
    @struct
    class Odd:
        LIMIT = 3
        x: int

        @property
        def double(self) -> int:
            return self.x * 2

    @struct
    class Nothing:
        pass

    assert dtype_of(Odd) == StructType("Odd", (("x", INT),))
    assert (Odd(2).double, Odd.LIMIT) == (4, 3)
    assert dtype_of(Nothing) == StructType("Nothing", ())
    assert Nothing().as_json() == {}


class NoStruct:
    pass


def row(ids: str, *case: object) -> Any:
    return pytest.param(*case, marks=pytest.mark.spec(*[f"types:{row}" for row in ids.split()]))


def method(self: object) -> None:
    del self


@pytest.mark.parametrize(
    ("body", "error", "fact"),
    [
        row("3:1", {"__annotations__": {"x": int}, "f": method}, DefinitionTypeError, "function f"),
        row("3:1", {"__annotations__": {"x": int}, "f": staticmethod(method)}, DefinitionTypeError, "function f"),
        row("3:1", {"__annotations__": {"x": int}, "f": classmethod(method)}, DefinitionTypeError, "function f"),
        row("3:2", {"__annotations__": {"x": int}, "x": 3}, DefinitionError, "field x has a default"),
        row("3:2", {"__annotations__": {"x": Optional[int]}, "x": None}, DefinitionError, "field x has a default"),
        row("3:4", {"__annotations__": {"x": NoStruct}}, DefinitionTypeError, "NoStruct"),
        row("3:4", {"__annotations__": {"x": list[NoStruct]}}, DefinitionTypeError, "NoStruct"),
        row("3:4", {"__annotations__": {"x": dict[str, NoStruct]}}, DefinitionTypeError, "NoStruct"),
        row("3:4", {"__annotations__": {"x": Optional[NoStruct]}}, DefinitionTypeError, "NoStruct"),
        row("3:5", {"__annotations__": {"x": List["Unknown"]}}, DefinitionTypeError, "Unknown"),  # noqa: F821
        row("3:5", {"__annotations__": {"x": List["Bad"]}}, DefinitionTypeError, "Bad"),  # noqa: F821
        row("3:5", {"__annotations__": {"x": Optional[List["Bad"]]}}, DefinitionTypeError, "Bad"),  # noqa: F821
        row("3:5", {"__annotations__": {"x": "Unknown"}}, DefinitionTypeError, "Unknown"),
    ],
)
def test_class_bodies_that_are_no_struct(body: dict[str, object], error: type[Exception], fact: str) -> None:
    with pytest.raises(error, match=f"struct Bad.*{fact}"):
        struct(type("Bad", (), body))


@pytest.mark.spec("types:3:3")
def test_a_struct_has_no_metadata() -> None:
    with pytest.raises(DefinitionError, match="@meta"):
        struct(meta(owner="a@b.co")(type("Bad", (), {"__annotations__": {"x": int}})))
    made: type = struct(type("Bad", (), {"__annotations__": {"x": int}}))
    with pytest.raises(DefinitionError, match="struct Bad: @meta"):
        meta(owner="a@b.co")(made)


def test_structs_with_nulls_in_lists_are_compared_and_shown() -> None:
    @struct
    class Holder:
        many: list[Optional[int]]
        named: dict[str, Optional[int]]

    null: Any = pd.NA
    found = Holder([1, null], {"a": null})
    assert found == Holder([1, None], {"a": None})
    assert found != Holder([1, 2], {"a": None})
    assert found.as_json() == {"many": [1, None], "named": {"a": None}}
