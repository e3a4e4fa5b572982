"""Pictures of the lineage in columns, around an entity or of the whole graph, as coordinates for SVG."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The most entities of a column. More of them would make a picture that nobody can read; the column then ends with a box
# that says how many were left out.
MAX_IN_COLUMN = 10
# In the picture of the whole graph, which is scrolled: the most entities of a column, and the most columns. Featuresets
# may be computed from each other, so the number of columns needs a bound.
MAX_IN_WHOLE, MAX_COLUMNS = 40, 12
# The sizes of boxes and gaps, in pixels, and the most characters of a name that fit into a box: a bold letter of DejaVu
# Sans, which is wider than other fonts, takes some 8 pixels of the 188 that a box has for its name.
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 208, 40, 56, 12, 8
LABEL = 22
# Matches the name of a source or a sink, and one of its settings with a value, but for the format of rows.
SYSTEM, SETTING = re.compile(r"\[[^:]*: (.*?)\]\((.*)\)"), re.compile(r"\b(?!format=)\w+=([^,]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """An entity, or with an empty `id` the number of those that were left out of its column."""

    id: str
    kind: str
    name: str
    label: str
    x: int
    y: int
    is_center: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes, the paths of lines between them, and the size of the whole in pixels."""

    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    width: int
    height: int
    left_out: int


def picture_of(
    center: str, above: Mapping[str, Sequence[str]], below: Mapping[str, Sequence[str]], depth: int
) -> Picture:
    """Return the picture of the entities that are up to `depth` steps above or below an entity.

    Args:
        center: The id of the entity.
        above: By id, the ids of entities from which an entity is computed.
        below: By id, the ids of entities that are computed from an entity.
        depth: The most steps from the center.
    """
    columns, left_out = {0: [center]}, dict[int, int]()
    for sign, edges in ((-1, above), (1, below)):
        seen, last = {center}, [center]
        for step in range(1, depth + 1):
            following = dict.fromkeys(after for before in last for after in edges.get(before, ()))
            found = [node for node in following if node not in seen]
            if not found:
                break
            seen.update(found)
            last = columns[sign * step] = found[:MAX_IN_COLUMN]
            if len(found) > MAX_IN_COLUMN:
                left_out[sign * step] = len(found) - MAX_IN_COLUMN
    return _drawn(center, columns, left_out, below)


def whole_picture_of(nodes: Sequence[str], below: Mapping[str, Sequence[str]]) -> Picture:
    """Return the picture of all entities, each in the column after the last one of those it is computed from.

    Args:
        nodes: The ids of the entities; there is at least one.
        below: By id, the ids of entities that are computed from an entity.
    """
    places = dict.fromkeys(nodes, 0)
    moved = set(nodes)
    for column in range(1, MAX_COLUMNS):
        moved = {after for before in moved for after in below.get(before, ()) if after in places}
        places.update(dict.fromkeys(moved, column))
    columns: dict[int, list[str]] = {}
    for node in nodes:
        columns.setdefault(places[node], []).append(node)
    left_out = {number: len(found) - MAX_IN_WHOLE for number, found in columns.items() if len(found) > MAX_IN_WHOLE}
    return _drawn("", {number: found[:MAX_IN_WHOLE] for number, found in columns.items()}, left_out, below)


def _drawn(
    center: str, columns: Mapping[int, Sequence[str]], left_out: Mapping[int, int], below: Mapping[str, Sequence[str]]
) -> Picture:
    rows = max(len(nodes) + (number in left_out) for number, nodes in columns.items())
    height = 2 * MARGIN + rows * BOX_HEIGHT + (rows - 1) * GAP_Y
    boxes: dict[str, Box] = {}
    others: list[Box] = []
    for place, number in enumerate(sorted(columns)):
        x, nodes = _x(place), columns[number]
        count = len(nodes) + (number in left_out)
        y = (height - count * BOX_HEIGHT - (count - 1) * GAP_Y) // 2
        for node in nodes:
            kind, _, name = node.partition(":")
            boxes[node] = Box(id=node, kind=kind, name=name, label=_label(name), x=x, y=y, is_center=node == center)
            y += BOX_HEIGHT + GAP_Y
        if number in left_out:
            text = f"{left_out[number]:,} more"
            others.append(Box(id="", kind="", name=text, label=text, x=x, y=y))
    tops = [sorted(box.y for box in (*boxes.values(), *others) if box.x == _x(place)) for place in range(len(columns))]
    lines = [
        _line(boxes[before], boxes[after], tops)
        for before in boxes
        for after in below.get(before, ())
        if after in boxes and boxes[before].x < boxes[after].x
    ]
    width = 2 * MARGIN + len(columns) * BOX_WIDTH + (len(columns) - 1) * GAP_X
    return Picture((*boxes.values(), *others), tuple(lines), width, height, sum(left_out.values()))


def _x(place: int) -> int:
    return MARGIN + place * (BOX_WIDTH + GAP_X)


def _label(name: str) -> str:
    if found := SYSTEM.fullmatch(name):
        name = f"{found[1]}: {'/'.join(SETTING.findall(found[2]))}"
    # A long name is cut in its middle: the name of a source begins with the system and ends with what is read from it.
    return name if len(name) <= LABEL else f"{name[: LABEL // 3]}…{name[-(LABEL - LABEL // 3 - 1) :]}"


def _line(before: Box, after: Box, tops: Sequence[Sequence[int]]) -> str:
    """Return the path from a box to another one; `tops` has the upper edges of the boxes of each column, sorted."""
    x, y = before.x + BOX_WIDTH, before.y + BOX_HEIGHT // 2
    end = after.y + BOX_HEIGHT // 2
    path = f"M{x} {y}"
    for place, column in enumerate(tops):
        if before.x < _x(place) < after.x:
            # A line that went on behind a box would seem to come from it, so it takes the next gap between two boxes.
            straight = y + (end - y) * (_x(place) - x) / (after.x - x)
            gaps = [column[0] - GAP_Y // 2, *(top + BOX_HEIGHT + GAP_Y // 2 for top in column)]
            gap = min(gaps, key=lambda one: abs(one - straight))
            path += f"{_curve(x, y, _x(place), gap)}H{_x(place) + BOX_WIDTH}"
            x, y = _x(place) + BOX_WIDTH, gap
    return path + _curve(x, y, after.x, end)


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    bend = GAP_X // 2
    return f"C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
