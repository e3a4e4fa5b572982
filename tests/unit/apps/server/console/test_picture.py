"""Laws of the picture of the whole graph."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.server.console.picture import (
    BOX_HEIGHT,
    BOX_WIDTH,
    LABEL,
    MAX_COLUMNS,
    MAX_IN_WHOLE,
    whole_picture_of,
)

NODES = [f"dataset:{number}" for number in range(12)]
EDGES = st.dictionaries(st.sampled_from(NODES), st.lists(st.sampled_from(NODES), max_size=4), max_size=12)


@given(EDGES)
def test_all_are_drawn_once_within_the_picture_also_if_they_need_each_other(below: dict[str, list[str]]) -> None:
    picture = whole_picture_of(NODES, below)
    assert sorted(box.id for box in picture.boxes) == sorted(NODES)
    assert len({(box.x, box.y) for box in picture.boxes}) == len(NODES)
    assert len({box.x for box in picture.boxes}) <= MAX_COLUMNS
    assert all(0 <= box.x < picture.width and 0 <= box.y < picture.height for box in picture.boxes)


@given(EDGES)
def test_what_is_computed_is_right_of_all_it_is_computed_from(below: dict[str, list[str]]) -> None:
    # Without cycles: an edge leads to a later node.
    later = {one: [node for node in after if NODES.index(node) > NODES.index(one)] for one, after in below.items()}
    picture = whole_picture_of(NODES, later)
    x = {box.id: box.x for box in picture.boxes}
    edges = {(one, node) for one, after in later.items() for node in after}
    assert all(x[one] < x[node] for one, node in edges)
    assert len(picture.lines) == sum(len(after) for after in later.values())


@given(EDGES)
def test_no_line_goes_behind_a_box_that_it_does_not_end_at(below: dict[str, list[str]]) -> None:
    picture = whole_picture_of(NODES, below)
    for line in picture.lines:
        # The parts of a line: its ends, and the ends of its curves and of its horizontal parts.
        x, y = (int(number) for number in line[1:].partition("C")[0].split())
        for part, numbers in re.findall(r"([CH])([\d ]+)", line):
            ends = [int(number) for number in numbers.split()]
            right, lower = (ends[-2], ends[-1]) if part == "C" else (ends[0], y)
            for box in picture.boxes:
                is_within = box.x < right and x < box.x + BOX_WIDTH
                assert not is_within or not box.y < lower < box.y + BOX_HEIGHT, (line, box)
                assert not is_within or part == "H", (line, box)
            x, y = right, lower
        assert 0 < y < picture.height


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("[Webhook: shop](endpoint=payments)", "shop: payments"),
        ("[Files: drop](folder=/tmp/day/caraway/accounts,prefix=)", "drop: /…raway/accounts"),
        ("[Kafka: events](topic=orders, format=json)", "events: orders"),
        ("[S3: lake](bucket=raw,prefix=clicks/)", "lake: raw/clicks/"),
        ("MerchantTakings", "MerchantTakings"),
    ],
)
def test_a_label_of_a_source_names_its_system_and_what_is_read(name: str, label: str) -> None:
    (box,) = whole_picture_of([f"source:{name}"], {}).boxes
    assert (box.label, box.name, len(box.label) <= LABEL) == (label, name, True)


def test_a_column_is_bounded_and_says_what_it_leaves_out() -> None:
    picture = whole_picture_of([f"source:{number}" for number in range(MAX_IN_WHOLE + 7)], {})
    assert (len(picture.boxes), picture.left_out, picture.boxes[-1].label) == (MAX_IN_WHOLE + 1, 7, "7 more")
