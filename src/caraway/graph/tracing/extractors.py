"""Tracing of extractors, which are functions of series."""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import pandas as pd

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.tracing.recording import (
    Recording,
    Silent,
    TracedColumn,
    declared_node,
    is_constant,
    names_used,
    record,
)

Typed = tuple[str, DataType]


def trace_extractor(
    function: Callable[..., Any], inputs: Sequence[Typed], outputs: Sequence[Typed]
) -> Mapping[str, Node] | None:
    """Return the expressions of the series that an extractor returns, None if it can't be traced.

    Args:
        function: The extractor, a function of its featureset, the times, and a series for each of `inputs`.
        inputs: Names of the series, which the expressions refer to, and their types.
        outputs: Names that the returned series must have, and their types. An expression may be null where the type
            isn't optional: at such a row the function would fail.
    """
    used = names_used(function)
    if used is None or not all(value is pd or is_constant(value) for value in used.values()):
        return None

    def call(recording: Recording) -> object:
        stand_ins = {name: _Pandas(recording) for name, value in used.items() if value is pd}
        if stand_ins:
            called = types.FunctionType(
                function.__code__,
                {**function.__globals__, **stand_ins},
                function.__name__,
                function.__defaults__,
                function.__closure__,
            )
            called.__kwdefaults__ = function.__kwdefaults__
        else:
            called = function  # type: ignore[assignment] # it is one
        unknown = _Unknown(recording)
        return called(unknown, unknown, *(TracedColumn.of(recording, name, dtype) for name, dtype in inputs))

    found = _named(record(call))
    nodes = {name: declared_node(found[name], dtype) for name, dtype in outputs if name in found}
    traced = {name: node for name, node in nodes.items() if node is not None}
    return traced if len(traced) == len(outputs) else None


def _named(result: object) -> Mapping[object, TracedColumn]:
    match result:
        case TracedColumn():
            return {result.label: result}
        case _Frame():
            return result.columns
        case _:
            return {}


class _Unknown(Silent):
    """A stand-in for values that no expression can hold: the featureset, the times."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        self._give_up()

    def __getitem__(self, key: object) -> NoReturn:
        self._give_up()


class _Frame(_Unknown):
    """A stand-in for a frame that a function makes."""

    __slots__ = ("columns",)

    def __init__(self, recording: Recording, columns: Mapping[object, TracedColumn]) -> None:
        super().__init__(recording)
        self.columns = columns


class _Pandas(_Unknown):
    """A stand-in for pandas, by which a function makes its result."""

    __slots__ = ()

    def Series(self, data: object = None, *, name: object = None) -> TracedColumn:  # noqa: N802 (as pandas has it)
        """Return the column under a name."""
        if not isinstance(data, TracedColumn):
            self._give_up()
        return data if name is None else data.rename(name)

    def DataFrame(self, data: object = None) -> _Frame:  # noqa: N802 (as pandas has it)
        """Return a frame of columns."""
        if type(data) is not dict or not all(isinstance(column, TracedColumn) for column in data.values()):
            self._give_up()
        return _Frame(self._recording, dict(data))
