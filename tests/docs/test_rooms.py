"""The number of rooms, floors and arrows is held: a newcomer must be able to keep the map in mind."""

import pytest

from tests.rooms import SOURCES, Map, read_map


@pytest.fixture(scope="module")
def rooms() -> Map:
    return read_map()


def test_the_map_stays_small(rooms: Map) -> None:
    assert len(rooms.lines) <= 22
    assert len(rooms.floors()) <= 12
    assert rooms.arrows <= 130


def test_a_circle_is_found() -> None:
    with pytest.raises(ValueError, match="circle"):
        Map({"a": 1, "b": 1}, {"a": frozenset("b"), "b": frozenset("a")}).floors()


def test_each_room_introduces_itself(rooms: Map) -> None:
    for room in rooms.lines:
        page = SOURCES / room / "README.md"
        if page.parent.is_dir():
            assert page.exists(), f"src/caraway/{room} has no README.md"
            assert len(page.read_text().splitlines()) <= 14
