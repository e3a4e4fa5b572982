"""`@includes`, which adds helper functions to an extractor."""

from collections.abc import Callable
from typing import Any, TypeVar

from caraway.errors import DefinitionTypeError

INCLUDES_ATTRIBUTE = "__caraway_includes__"

# The type of the decorated object: a function, or the object that another decorator below `@includes` made from the
# function.
F = TypeVar("F")


def includes(*functions: Callable[..., Any]) -> Callable[[F], F]:
    """Add helper functions, whose code becomes part of the decorated function's; their own helpers follow.

    Raises `DefinitionTypeError` if an argument isn't a function.
    """
    for function in functions:
        if not callable(function):
            raise DefinitionTypeError(f"@includes takes functions, not {type(function).__name__} {function!r}")

    def decorate(function: F) -> F:
        setattr(function, INCLUDES_ATTRIBUTE, functions)
        return function

    return decorate


def included(function: object) -> tuple[Callable[..., Any], ...]:
    """Return the helpers of a function and theirs, each once, in order of appearance."""
    found: dict[Callable[..., Any], None] = {}
    pending = list(getattr(function, INCLUDES_ATTRIBUTE, ()))
    while pending:
        helper = pending.pop(0)
        if helper not in found:
            found[helper] = None
            pending.extend(getattr(helper, INCLUDES_ATTRIBUTE, ()))
    return tuple(found)
