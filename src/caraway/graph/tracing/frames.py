"""Tracing of functions of a frame, as pipelines have them."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from caraway.dtypes.types import BOOL, DataType
from caraway.expr.nodes import FillNull, Literal, Node
from caraway.graph.tracing.recording import (
    Recording,
    Silent,
    TracedColumn,
    declared_node,
    is_constant,
    is_large,
    names_used,
    record,
)


def trace_filter(function: Callable[..., Any], columns: Mapping[str, DataType]) -> Node | None:
    """Return the predicate that a function of a frame with these columns computes, None if it can't be traced.

    Null counts as false, as in the result of the function.
    """
    recorded = _recorded(function, columns)
    if recorded is None or recorded.kind != BOOL or is_large(recorded.node):
        return None
    return FillNull(operand=recorded.node, fill=Literal(value=False, dtype=BOOL))


def trace_column(function: Callable[..., Any], columns: Mapping[str, DataType], dtype: DataType) -> Node | None:
    """Return the expression of a column of type `dtype` that a function computes, None if it can't be traced.

    The expression may be null where `dtype` isn't optional: at such a row the function would fail, and so must the
    step.
    """
    recorded = _recorded(function, columns)
    return None if recorded is None else declared_node(recorded, dtype)


def _recorded(function: Callable[..., Any], columns: Mapping[str, DataType]) -> TracedColumn | None:
    used = names_used(function)
    if used is None or not all(map(is_constant, used.values())):
        return None
    result = record(lambda recording: function(_Frame(recording, columns)))
    return result if isinstance(result, TracedColumn) else None


class _Frame(Silent):
    """A stand-in for the frame."""

    __slots__ = ("_columns",)

    def __init__(self, recording: Recording, columns: Mapping[str, DataType]) -> None:
        super().__init__(recording)
        self._columns = columns

    def __getitem__(self, name: object) -> TracedColumn:
        if not isinstance(name, str) or name not in self._columns:
            self._give_up()
        return TracedColumn.of(self._recording, name, self._columns[name])

    def __getattr__(self, name: str) -> TracedColumn:
        if hasattr(pd.DataFrame, name):
            self._give_up()
        return self[name]
