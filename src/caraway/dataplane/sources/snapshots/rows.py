"""Rows of a file of a table, with their numbers in the file."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

BEGIN_ANEW = "raise the version of the dataset, whose source then begins anew with the rows that the table has"


@dataclass(slots=True)
class Rows:
    """Rows of a data file: a record batch of Arrow, and the numbers of its rows in the file, which grow."""

    numbers: Any
    batch: Any

    def cut(self, start: int, stop: int) -> "Rows":
        """Return the rows from one up to another one."""
        return Rows(self.numbers[start:stop], self.batch.slice(start, stop - start))

    def chosen(self, mask: Any) -> "Rows":
        """Return the rows for which a mask is true."""
        return self if mask.all() else Rows(self.numbers[mask], self.batch.filter(pa.array(mask)))
