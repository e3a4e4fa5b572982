"""The map of the house: the rooms under `src/caraway`, the floors on which they stand, and the imports between them.

A room is a package or a module directly under `src/caraway`. A room stands one floor above the highest of those that it
imports. `python -m tests.rooms` (`just map`) prints the floors from the top down; `tests/docs/test_rooms.py` bounds
them.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

SOURCES = Path(__file__).parents[1] / "src" / "caraway"
# Public names for something that stands above them (see the contract "rooms" in pyproject.toml).
ALIASES = frozenset({"caraway.lib.aggregate", "caraway.expr.serializer"})


@dataclass(frozen=True)
class Map:
    """The rooms and their imports.

    Attributes:
        lines: How many lines of Python each room has.
        imports: The rooms that each room imports.
    """

    lines: dict[str, int]
    imports: dict[str, frozenset[str]]

    @property
    def arrows(self) -> int:
        """How many pairs of rooms are tied by an import."""
        return sum(map(len, self.imports.values()))

    def floors(self) -> list[list[str]]:
        """Return the rooms of each floor, the ground first.

        Raises:
            ValueError: Rooms import each other in a circle.
        """

        @cache
        def floor(room: str) -> int:
            return max((floor(below) + 1 for below in self.imports[room]), default=0)

        try:
            heights = {room: floor(room) for room in sorted(self.lines)}
        except RecursionError:
            raise ValueError("rooms import each other in a circle") from None
        return [[room for room in heights if heights[room] == height] for height in range(max(heights.values()) + 1)]


def read_map() -> Map:
    """Return the map of the sources as they are now."""
    rooms = {path.stem for path in _rooms()}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    graph = grimp.build_graph("caraway", cache_dir=None)
    for module in graph.modules - ALIASES:
        room = _room(module)
        if room in rooms:
            below = {_room(imported) for imported in graph.find_modules_directly_imported_by(module)}
            found[room] |= (below & rooms) - {room}
    return Map({path.stem: _count(path) for path in _rooms()}, {room: frozenset(found[room]) for room in rooms})


def _rooms() -> Iterator[Path]:
    for path in SOURCES.iterdir():
        if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem != "__init__"):
            yield path


def _room(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def _count(path: Path) -> int:
    files = path.rglob("*.py") if path.is_dir() else [path]
    return sum(file.read_bytes().count(b"\n") for file in files)


def main() -> None:
    """Print the map."""
    found = read_map()
    floors = found.floors()
    lines = [
        f"{height:>3}  {room:<12} {found.lines[room]:>7,}  {' '.join(sorted(found.imports[room]))}"
        for height, rooms in reversed(list(enumerate(floors, 1)))
        for room in rooms
    ]
    sys.stdout.write(
        "\n".join([*lines, "", f"{len(found.lines)} rooms, {len(floors)} floors, {found.arrows} arrows\n"])
    )


if __name__ == "__main__":
    main()
