"""What a running query holds: columns that grow step by step."""

from collections.abc import Callable
from dataclasses import dataclass

from caraway.query.model import Instants


@dataclass(slots=True)
class Batch:
    """The rows of a request: `columns` by full name, values in stored form.

    `at` is the time at which everything is read: one instant for a query at now, else one for each row. `past` tells
    that the caller chose it, which takes an offline index.
    """

    columns: dict[str, list[object]]
    rows: int
    at: Instants
    past: bool

    def instants(self) -> list[int]:
        """Give the instant of each row."""
        return [self.at] * self.rows if isinstance(self.at, int) else list(self.at)


Run = Callable[[Batch], None]
