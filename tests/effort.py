"""How hard property tests try: few examples while one works, more in CI."""

import os

from hypothesis import settings

# Under CI and in the fast tier; a plain run at the desk lies between. A soak takes as long as it takes.
_SCALE = {"soak": 6.0, "ci": 1.0, "desk": 0.3, "fast": 0.08}
PROFILE = os.environ.get("CARAWAY_TESTS", "ci" if os.environ.get("CI") else "desk")


def examples(number: int) -> int:
    """Return how many examples to draw where CI draws `number`."""
    return max(3, round(number * _SCALE[PROFILE]))


def patience(seconds: int) -> int:
    """Return the time-out of a test that has so many seconds in CI."""
    return round(seconds * max(1.0, _SCALE[PROFILE]))


def register_profiles() -> None:
    """Set Hypothesis's own defaults: the same examples in every run of CI, fresh ones elsewhere."""
    # Machines under load are slow, not wrong: no deadlines.
    settings.register_profile("desk", deadline=None, max_examples=examples(100))
    settings.register_profile("soak", parent=settings.get_profile("desk"))
    settings.register_profile("fast", parent=settings.get_profile("desk"))
    settings.register_profile("ci", parent=settings.get_profile("desk"), derandomize=True, print_blob=True)
    settings.load_profile(PROFILE)
