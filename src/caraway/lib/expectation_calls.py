"""The result of an `expect_...` function: its name and all of its arguments."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from caraway.errors import DefinitionError
from caraway.graph.expectations import argument_fault

P = ParamSpec("P")

# A column by name, or as `cls.column`.
Column = Any
Expected = tuple[str, dict[str, Any]]


def expectation(declared: Callable[P, None]) -> Callable[P, Expected]:
    """Return a check from its signature: it returns its name in lower case, and all arguments with defaults.

    Raises:
        DefinitionError: An argument is out of its range. An unknown or missing one is Python's own TypeError.
    """
    signature = inspect.signature(declared)
    name = declared.__name__.lower()

    @functools.wraps(declared)
    def call(*args: P.args, **kwargs: P.kwargs) -> Expected:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if fault := argument_fault(name, arguments):
            raise DefinitionError(f"{declared.__name__}: {fault}")
        return name, arguments

    return call
