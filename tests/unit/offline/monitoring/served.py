"""Tables of served features for the tests of watches that read them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from caraway.dataplane.archive.served_table import SCHEMA, rows_of, table_of
from caraway.dataplane.archive.store.tables import ArchiveTable


def record(served_us: int, users: Sequence[int], *, branch: str = "main", **outputs: Sequence[Any]) -> bytes:
    """Return the record of a query of the users' features `outputs`, whose names are without their featureset `A`."""
    return orjson.dumps(
        {
            "query": f"q{served_us}",
            "served_us": served_us,
            "branch": branch,
            "commit": "c",
            "workflow": "w",
            "at_us": served_us - 1,
            "rows": list(range(len(users))),
            "inputs": {"A.user": users},
            "outputs": {f"A.{name}": values for name, values in outputs.items()},
        }
    )


def table(folder: Path, messages: Sequence[tuple[int, int, bytes]]) -> ArchiveTable:
    """Return a table with the rows of messages, given by partition, offset and value; each in a file of its own."""
    found = ArchiveTable.opened(str(folder), "served", SCHEMA, dataset="served features")
    for partition, offset, data in messages:
        found.append(table_of(list(rows_of(data, partition, offset))), {partition: offset + 1})
    return found
