"""`@inputs` and `@outputs`, which declare the inputs and outputs of a pipeline or an extractor."""

from collections.abc import Callable
from typing import Any, TypeVar

from caraway.errors import DefinitionError

INPUTS_ATTRIBUTE = "__caraway_inputs__"
OUTPUTS_ATTRIBUTE = "__caraway_outputs__"

# The type of a decorated object: a function, or the object that another decorator made from the function.
F = TypeVar("F")


def inputs(*items: Any) -> Callable[[F], F]:
    """Declare the datasets of a pipeline, or the features of an extractor.

    Raises:
        DefinitionError: Nothing is named.
    """
    if not items:
        raise DefinitionError("@inputs() names nothing; leave it out if there are no inputs")
    return _attach(INPUTS_ATTRIBUTE, items)


def outputs(*items: Any) -> Callable[[F], F]:
    """Declare the features that an extractor computes.

    Raises:
        DefinitionError: Nothing is named.
    """
    if not items:
        raise DefinitionError("@outputs() names nothing; leave it out if the extractor computes all features")
    return _attach(OUTPUTS_ATTRIBUTE, items)


def _attach(attribute: str, items: tuple[Any, ...]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        setattr(function, attribute, items)
        return function

    return decorate
