"""Former names of `caraway.datasets`, which programs still import and which have no effect on a dataset.

Missing rows aren't computed on demand, and there is no step `summarize`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from caraway.datasets.nodes import Node
from caraway.dtypes.durations import parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.operators import Operator


@dataclass(frozen=True)
class OnDemand:
    """A function that would compute missing rows; it is never called."""

    function: Callable[..., Any]
    expires_after: str


def on_demand(expires_after: str) -> Callable[[Callable[..., Any]], OnDemand]:
    """Mark a function as one that computes missing rows; without effect.

    Raises:
        DefinitionTypeError: `expires_after` is no string, or the decorated object no function.
        DefinitionError: `expires_after` isn't a duration.
    """
    parse_duration(expires_after)

    def decorate(function: Callable[..., Any]) -> OnDemand:
        if not callable(function):
            raise DefinitionTypeError(f"@on_demand goes onto a function, not {type(function).__name__} {function!r}")
        return OnDemand(function, expires_after)

    return decorate


@dataclass(frozen=True)
class Summary:
    """A column that a step `summarize` would have added."""

    field: str
    dtype: Any
    summary_func: Callable[..., Any]


class Visitor:
    """A visitor that calls the method for an operator: `visitFilter(operator)`, `visitJoin(operator)`, ..."""

    def visit(self, obj: Node | Operator) -> Any:
        """Return the result of the method for this step of a pipeline.

        Raises:
            DefinitionError: The visitor has no such method.
        """
        operator = obj.node_operator if isinstance(obj, Node) else obj
        name = f"visit{type(operator).__name__}"
        method = getattr(self, name, None)
        if method is None:
            raise DefinitionError(f"{type(self).__name__} has no method {name}")
        return method(operator)
