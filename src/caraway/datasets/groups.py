"""`groupby`, and the steps that follow it: `first`, `latest` and `aggregate`."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from caraway.datasets.aggregates import AggregateType
from caraway.datasets.arguments import column_names, kind
from caraway.datasets.fields import Field
from caraway.datasets.windows import window_spec
from caraway.dtypes.durations import FOREVER
from caraway.dtypes.windows import Hopping, Session, Tumbling
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.operators import Aggregate, Emit, First, Latest
from caraway.graph.schemas import group_keys, require_not_terminal
from caraway.graph.trees import datasets_read
from caraway.graph.windows import HoppingWindow

if TYPE_CHECKING:
    from caraway.datasets.dataset import Dataset
    from caraway.datasets.nodes import Node


# The two ways in which discrete windows close. The names are those of Flink's triggers.
PROCESSING_TIME = "processing_time"
CLOSES = ("event_time", PROCESSING_TIME)


class GroupBy:
    """The rows of a step grouped by columns; `first`, `latest` or `aggregate` makes the next step from the groups."""

    def __init__(self, node: "Node", args: tuple[Any, ...], window: Any = None) -> None:
        if window is not None:
            if not isinstance(window, (Hopping, Tumbling, Session)):
                raise DefinitionTypeError(f"groupby: the window is Hopping, Tumbling or Session, not {kind(window)}")
            if isinstance(window, Hopping) and window.duration == FOREVER:
                raise DefinitionTypeError('groupby: the window can\'t be Hopping("forever", ...); give it a duration')
        self._node = node
        self._keys = column_names("groupby", args, None) or ()
        self._window = None if window is None else window_spec(window)
        group_keys(self._keys, node.node_schema, datasets_read(node.node_operator))

    def first(self) -> "Dataset":
        """Keep the oldest row of each group: a dataset keyed by the grouping columns.

        Raises:
            DefinitionTypeError: The input is keyed.
            DefinitionError: The groupby has a window.
        """
        self._require_no_window("first")
        return self._node.add_step(First(of=self._node.node_operator, keys=self._keys))

    def latest(self) -> "Dataset":
        """Keep the newest row of each group: a dataset keyed by the grouping columns.

        Raises:
            DefinitionTypeError: The input is keyed.
            DefinitionError: The groupby has a window.
        """
        self._require_no_window("latest")
        return self._node.add_step(Latest(of=self._node.node_operator, keys=self._keys))

    def _require_no_window(self, name: str) -> None:
        if self._window is not None:
            raise DefinitionError(f"{name}: groupby has a window, which only aggregate can follow")

    def aggregate(
        self,
        *args: AggregateType | Sequence[AggregateType],
        along: str | Field | None = None,
        emit: Emit | Literal["eager", "final"] = "eager",
        closes: Literal["event_time", "processing_time"] = "event_time",
        **named: AggregateType,
    ) -> "Dataset":
        """Compute aggregates over the rows of each group: `aggregate(total=Sum(of="amount", window=Continuous("1d")))`.

        Args:
            args: Aggregates with `into_field`, or one list of them.
            along: A datetime column that takes the timestamp's place.
            emit: "eager" to emit results as rows come, and correct them; "final" to emit a window once, complete.
            closes: "event_time" to close a tumbling or hopping window by the next row; "processing_time" to close it by
                the clock as well, so that it closes although no row comes.
            named: Aggregates by their output column.

        Raises:
            DefinitionError: An aggregate doesn't fit the input, or two have one output column.
            DefinitionTypeError: An aggregate isn't defined for its column's type, or there are none.
        """
        node = self._node
        require_not_terminal(node.node_schema, "aggregate")
        for reserved, value in (("along", along), ("emit", emit), ("closes", closes)):
            if isinstance(value, AggregateType):
                raise DefinitionError(f"aggregate: {reserved} is reserved; choose another name for the column")
        if along is not None and not isinstance(along, (str, Field)):
            raise DefinitionError(f"aggregate: along is the name of a datetime column, not {kind(along)}")
        if emit not in tuple(Emit):
            raise DefinitionError(f'aggregate: emit is "eager" or "final", not {emit!r}')
        if closes not in CLOSES:
            raise DefinitionError(f'aggregate: closes is "event_time" or "processing_time", not {closes!r}')
        specs = tuple(self._spec(aggregate) for aggregate in self._aggregates(args, named))
        operator = Aggregate(
            of=node.node_operator,
            keys=self._keys,
            aggregates=specs,
            window=self._window,
            along=None if along is None else str(along),
            emit=Emit(emit),
            by_clock=closes == PROCESSING_TIME,
        )
        made = node.add_step(operator)
        _warn_of_keyed_input(operator, tuple(node.node_schema.keys))
        return made

    def _aggregates(self, args: tuple[Any, ...], named: dict[str, Any]) -> list[AggregateType]:
        positional = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        if not positional and not named and self._window is None:
            raise (DefinitionError if args else DefinitionTypeError)("aggregate: name at least one aggregate")
        for column, aggregate in [*((None, a) for a in positional), *named.items()]:
            if not isinstance(aggregate, AggregateType):
                where = f"column {column}" if column else "an argument"
                raise DefinitionError(f"aggregate: {where} is {kind(aggregate)}, not an aggregate such as Sum(...)")
        return [*positional, *(replace(aggregate, into_field=column) for column, aggregate in named.items())]

    def _spec(self, aggregate: AggregateType) -> AggregateSpec:
        spec = aggregate.to_spec(self._node.node_schema)
        # An aggregate may repeat the window of its `groupby(..., window=W)`. The repetition is dropped, so that both
        # spellings make the same definition.
        return replace(spec, window=None) if self._window is not None and spec.window == self._window else spec


def _warn_of_keyed_input(operator: Aggregate, keys: tuple[str, ...]) -> None:
    in_strides = all(isinstance(a.window, HoppingWindow) and a.window.length_us is None for a in operator.aggregates)
    if keys and operator.along is None and not in_strides:
        warnings.warn(
            f'aggregate over an input keyed by {", ".join(keys)}: windows other than Hopping("forever", ...) without '
            "along= are deprecated there",
            DeprecationWarning,
            stacklevel=3,
        )
