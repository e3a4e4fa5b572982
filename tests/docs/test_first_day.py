"""docs/inside/first_day.md: each point is shown to be gone by a test or a figure, or is told as open."""

import re

import pytest

from tests.markdown import DOCS
from tests.named_tests import missing

_TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)?)`")
PAGE = (DOCS / "inside" / "first_day.md").read_text(encoding="utf-8")
POINTS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| point ")]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point[2:60])
def test_a_point_names_tests_that_exist_or_what_is_left(point: str) -> None:
    shown = point.rstrip().removesuffix("|").rpartition(" | ")[2]
    found = _TEST.findall(shown)
    assert found or "open" in shown or "[measured]" in shown, f"name a test, or say what is open, in {point}"
    assert [missing(test) for test in found if missing(test)] == []


def test_the_points_are_found() -> None:
    assert len(POINTS) > 30
