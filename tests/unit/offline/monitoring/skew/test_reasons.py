"""The comparison of served values with recomputed ones, and the times of knowledge."""

from typing import Any

import pytest

from caraway.offline.monitoring.skew.reasons import NOW_US, Compared, knowledge_us
from caraway.offline.monitoring.skew.recomputing import Failure, Question, json_text
from caraway.offline.monitoring.skew.sampling import ServedRow

HOUR = 3_600_000_000


def row(outputs: dict[str, Any], *, served_us: int = HOUR, at_us: int = HOUR - 400) -> ServedRow:
    return ServedRow(
        served_us=served_us,
        at_us=at_us,
        branch="main",
        commit="c",
        query="q",
        row=0,
        inputs={},
        outputs=outputs,
        partition=0,
        offset=0,
    )


@pytest.mark.parametrize(
    ("served", "recomputed", "same"),
    [
        (0.1 + 0.2, 0.3, False),
        (0.3, 0.3, True),
        (0.0, -0.0, False),
        (1, 1.0, False),
        (None, None, True),
        (None, float("nan"), True),
        (["a", 1.5], ["a", 1.5], True),
        ({"a": 1, "b": [None]}, {"a": 1, "b": [None]}, True),
        (2**63, 2**63, True),
        ("é\u0000", "é\u0000", True),
    ],
)
def test_values_are_compared_to_the_bit(served: Any, recomputed: Any, same: bool) -> None:
    compared = Compared(Question((), ("A.x",)), [row({"A.x": served})], [{"A.x": json_text(recomputed)}])
    assert compared.differing() == ([] if same else [(0, "A.x")])


def test_rows_that_failed_have_no_values_that_differ() -> None:
    rows = [row({"A.x": 1, "A.y": 2}), row({"A.x": 1, "A.y": 2})]
    compared = Compared(Question((), ("A.x", "A.y")), rows, [Failure("no"), {"A.x": "1", "A.y": "3"}])
    assert compared.differing() == [(1, "A.y")]


@pytest.mark.parametrize(
    ("served_us", "at_us", "known_us"),
    [
        (HOUR, HOUR - 400, HOUR - 400),
        (HOUR, HOUR - NOW_US, HOUR - NOW_US),
        # The caller chose these times.
        (HOUR, HOUR - NOW_US - 1, HOUR),
        (HOUR, 5, HOUR),
        (HOUR, HOUR + 1, HOUR),
    ],
)
def test_a_row_sees_what_was_known_when_it_was_served(served_us: int, at_us: int, known_us: int) -> None:
    assert knowledge_us(row({}, served_us=served_us, at_us=at_us)) == known_us
