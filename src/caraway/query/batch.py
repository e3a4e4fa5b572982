"""What a running query holds: columns that grow step by step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from caraway.errors import InvalidInputError
from caraway.query.model import Computed, Instants


class Columns(dict[str, list[object]]):
    """Columns by full name. One whose values don't fit its type is refused when a step comes to read it."""

    def __init__(
        self, columns: Mapping[str, list[object]], unfit: Mapping[str, InvalidInputError] | None = None
    ) -> None:
        """Hold `columns`; `unfit` tells what is wrong with the others."""
        super().__init__(columns)
        self._unfit = unfit or {}

    def __missing__(self, name: str) -> list[object]:
        raise self._unfit[name]


@dataclass(slots=True)
class Batch:
    """The rows of a request: `columns` by full name, values in stored form.

    `at` is the time at which everything is read: one instant for a query at now, else one for each row. `past` tells
    that the caller chose it, which takes an offline index. `returned` are the columns of user code as it returned them.
    """

    columns: dict[str, list[object]]
    rows: int
    at: Instants
    past: bool
    returned: "dict[str, pd.Series[Any]]" = field(default_factory=dict)

    def instants(self) -> list[int]:
        """Give the instant of each row."""
        return [self.at] * self.rows if isinstance(self.at, int) else list(self.at)


Run = Callable[[Batch], None]


@runtime_checkable
class LaterRun(Protocol):
    """A step that is done elsewhere: its caller may wait for it, or go on with other things."""

    def __call__(self, batch: Batch) -> None:
        """Add the step's columns to a batch."""
        ...

    async def later(self, batch: Batch) -> None:
        """Add the step's columns to a batch while the event loop goes on."""
        ...


@runtime_checkable
class Traceable(LaterRun, Protocol):
    """A step of a user's function that may turn out to be expressions."""

    @property
    def expressions(self) -> tuple[Computed, ...]:
        """Of each output its expression; none as long as the function is called."""
        ...
