"""How hard property tests try: few examples while one works, some in CI, many before a release (`just full`)."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

# Tests name the number of examples that `just full` draws. CI draws fewer of them, or properties alone would take three
# of its minutes; the fast tier fewer still. A soak takes as long as it takes.
_SCALE = {"soak": 6.0, "full": 1.0, "ci": 0.1, "desk": 0.3, "fast": 0.08}
PROFILE = os.environ.get("CARAWAY_TESTS", "ci" if os.environ.get("CI") else "desk")


def examples(number: int) -> int:
    """Return how many examples to draw where `just full` draws `number`."""
    return max(3, round(number * _SCALE[PROFILE]))


def part_of(things: Sequence[T]) -> list[T]:
    """Return things that a test looks at one by one: all of them in `just full`, elsewhere some drawn by chance."""
    return random.sample(things, min(len(things), examples(len(things))))


def timeout_of(seconds: int) -> int:
    """Return the time-out of a test that has so many seconds in `just full`."""
    return round(seconds * max(1.0, _SCALE[PROFILE]))


def default_timeout(seconds: float) -> float:
    """Return the limit of a test without one of its own: longer where tests draw all examples, and kill for minutes."""
    return seconds * (3 if PROFILE in {"full", "soak"} else 1)


def register_profiles() -> None:
    """Set Hypothesis's own defaults: the same examples in every run of CI and `just full`, fresh ones elsewhere."""
    # Machines under load are slow, not wrong: no deadlines.
    settings.register_profile("desk", deadline=None, max_examples=examples(100))
    settings.register_profile("soak", parent=settings.get_profile("desk"))
    settings.register_profile("fast", parent=settings.get_profile("desk"))
    for repeatable in ("ci", "full"):
        settings.register_profile(repeatable, parent=settings.get_profile("desk"), derandomize=True, print_blob=True)
    settings.load_profile(PROFILE)
