# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="attr-defined, call-arg, comparison-overlap, name-defined"
from typing import List, Optional  # noqa: UP035 (what users write)

import pytest

from caraway.dtypes import struct
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.lib import meta


@struct
class Point:
    x: int
    y: Optional[float]


@struct
class Line:
    name: str
    points: List[Point]


def test_instances() -> None:
    point = Point(1, y=None)
    assert point == Point(x=1, y=None) != Point(1, 2.0)
    assert point != 1
    line = Line("a", [point])
    assert line.as_json() == {"name": "a", "points": [{"x": 1, "y": None}]}
    assert len({point, point}) == 1
    with pytest.raises(TypeError):
        Point(1)


def test_equality_is_structural() -> None:
    @struct
    class Other:
        x: int
        y: Optional[float]

    assert Other(1, None) == Point(1, None)


class NoStruct:
    pass


def method(self: object) -> None:
    del self


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"__annotations__": {"x": int}, "f": method}, DefinitionTypeError),
        ({"__annotations__": {"x": int}, "f": staticmethod(method)}, DefinitionTypeError),
        ({"__annotations__": {"x": int}, "x": 3}, DefinitionError),
        ({"__annotations__": {"x": NoStruct}}, DefinitionTypeError),
        ({"__annotations__": {"x": list[NoStruct]}}, DefinitionTypeError),
        ({"__annotations__": {"x": List["Unknown"]}}, DefinitionTypeError),  # noqa: F821
        ({"__annotations__": {"x": "Unknown"}}, DefinitionTypeError),
    ],
)
def test_class_bodies_that_are_no_struct(body: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match="struct Bad"):
        struct(type("Bad", (), body))


def test_a_struct_has_no_metadata() -> None:
    with pytest.raises(DefinitionError, match="@meta"):
        struct(meta(owner="a@b.co")(type("Bad", (), {"__annotations__": {"x": int}})))
