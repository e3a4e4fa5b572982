"""Steps of users' functions that are made in a test."""

from typing import Any

import cloudpickle


def by_value(function: Any) -> bytes:
    """Pickle a function for a process that doesn't have the tests."""
    function.__module__ = "__main__"
    pickled: bytes = cloudpickle.dumps(function)
    return pickled
