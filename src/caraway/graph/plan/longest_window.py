"""The longest of the windows in which the rows of a dataset count: older rows change no value that is served now."""

from collections.abc import Iterator

from caraway.graph.operators import Aggregate, Join, Operator
from caraway.graph.specs import Graph
from caraway.graph.trees import datasets_read, parents
from caraway.graph.windows import ContinuousWindow, HoppingWindow


def longest_window(name: str, graph: Graph) -> int | None:
    """Return its length in microseconds; None if nothing reads the dataset, or something without such a bound does."""
    readers = [p.operator for spec in graph.datasets for p in spec.pipelines if name in datasets_read(p.operator)]
    lengths = [length for operator in readers for length in _lengths(name, operator)]
    known = [length for length in lengths if length is not None]
    return max(known) if known and len(known) == len(lengths) else None


def _lengths(name: str, operator: Operator) -> Iterator[int | None]:
    """Yield the lengths of the windows of a pipeline; None for a part that also counts rows of any age."""
    if not isinstance(operator, Aggregate) or _joins(name, operator):
        yield None
        return
    for aggregate in operator.aggregates:
        window = operator.window or aggregate.window
        yield window.length_us if isinstance(window, ContinuousWindow | HoppingWindow) else None


def _joins(name: str, operator: Operator) -> bool:
    """Return whether a dataset is the right side of a join, whose rows match however old they are."""
    return (isinstance(operator, Join) and operator.right == name) or any(
        _joins(name, parent) for parent in parents(operator)
    )
