"""The columns of a running query, to which each step adds its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from caraway.compute.query.model import Computed, Instants
from caraway.errors import InvalidInputError


class Columns(dict[str, list[object]]):
    """Columns by full name. To read a column whose values don't fit its type raises the error of that column."""

    def __init__(
        self, columns: Mapping[str, list[object]], unfit: Mapping[str, InvalidInputError] | None = None
    ) -> None:
        """Hold `columns`; `unfit` has the errors of the others."""
        super().__init__(columns)
        self._unfit = unfit or {}

    def __missing__(self, name: str) -> list[object]:
        raise self._unfit[name]


@dataclass(slots=True)
class Batch:
    """The rows of a request: `columns` by full name, values in stored form.

    `at` is the time at which everything is read: one instant for a query as of now, otherwise an instant for each row.
    `past` is true if the caller chose the time, which needs an offline index. `returned` has the series that users'
    functions returned, by the names of their columns.
    """

    columns: dict[str, list[object]]
    rows: int
    at: Instants
    past: bool
    returned: "dict[str, pd.Series[Any]]" = field(default_factory=dict)

    def instants(self) -> list[int]:
        """Return the instant of each row."""
        return [self.at] * self.rows if isinstance(self.at, int) else list(self.at)


Run = Callable[[Batch], None]


@runtime_checkable
class LaterRun(Protocol):
    """A step that waits for another process or server. Its caller may block until the step is done, or await it."""

    def __call__(self, batch: Batch) -> None:
        """Add the step's columns to a batch."""
        ...

    async def later(self, batch: Batch) -> None:
        """Add the step's columns to a batch without blocking the event loop."""
        ...


@runtime_checkable
class Traceable(LaterRun, Protocol):
    """A step of a user's function, which may be found to be equal to expressions."""

    @property
    def expressions(self) -> tuple[Computed, ...]:
        """Return the expression of each output; nothing as long as the function itself is called."""
        ...
