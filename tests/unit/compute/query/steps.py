"""Steps of users' functions that tests define."""

from typing import Any

import cloudpickle


def by_value(function: Any) -> bytes:
    """Pickle a function by value, for a process that can't import the tests."""
    function.__module__ = "__main__"
    pickled: bytes = cloudpickle.dumps(function)
    return pickled
