"""The rows that changes put into a table, or delete from it: by key, or for datasets without keys by a hash."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.envelopes import Product
from caraway.graph.plan.model import SinkPlan

# The length of the hash of a row without keys, in bytes.
HASH_BYTES = 16

_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table.

    Attributes:
        change: The change that makes it.
        row: The row.
        hash: The hash of a row without keys; empty for a row with keys.
        deleted: True if the row is to be deleted, False if it is to be put.
    """

    change: Change
    row: Row
    hash: str
    deleted: bool


def hash_column(product: Product) -> str:
    """Return the name of the column that has the hashes of rows without keys."""
    return f"__{product}_hash__"


def table_rows(plan: SinkPlan, changes: Sequence[Change]) -> list[TableRow]:
    """Return the rows of changes of which each key has at most one; no two of the rows have one key or hash."""
    keyed = bool(plan.topic.schema.keys)
    made: list[TableRow] = []
    for change in changes:
        before, after = change.before, change.after
        if keyed:
            made.append(TableRow(change, change.row, "", deleted=after is None))
            continue
        # A row without keys that is revised has another hash than before, so the row with the old hash is deleted.
        hashes = ["" if row is None else _hash_of(plan, row, change.key) for row in (before, after)]
        if hashes[0] == hashes[1]:
            continue
        if after is not None:
            made.append(TableRow(change, after, hashes[1], deleted=False))
        if before is not None:
            made.append(TableRow(change, before, hashes[0], deleted=True))
    return made


def _hash_of(plan: SinkPlan, row: Row, identity: bytes) -> str:
    """Return the hash of a row without keys, of which two equal rows have different ones, by their identities."""
    dataset = (plan.dataset.name, plan.dataset.version)
    content = _ENCODE((dataset, row.values, row.time_us, identity))
    return hashlib.blake2b(content, digest_size=HASH_BYTES).hexdigest()
