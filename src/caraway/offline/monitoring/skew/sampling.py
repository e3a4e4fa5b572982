"""Samples of the rows of the table of served features, a bounded number of those that came since the last pass."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import polars as pl

from caraway.dataplane.archive.served_table import NUMBER, OFFSET, PARTITION, POSITION, SCHEMA, TIME
from caraway.dataplane.archive.store.frames import frame_of
from caraway.dataplane.archive.store.tables import ArchiveTable

# One pass looks at only the newest messages of a partition, at most this many. So a pass has a bounded number of
# positions in memory, and a watch that was down for long doesn't begin with old rows.
SPAN = 100_000
SERVED_AT = "served_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRow:
    """A row of served features: the inputs and outputs of a query, and where the row is."""

    served_us: int
    at_us: int
    branch: str
    commit: str
    query: str
    row: int
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The rows that were drawn, and the positions behind all rows from which they were drawn, by partition."""

    rows: Sequence[ServedRow]
    until: Mapping[int, int]


def draw(
    table: ArchiveTable,
    since: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    served_before_us: int,
    most: int,
    hides: Callable[[str, str, str], bool],
    chance: random.Random,
) -> Drawn:
    """Draw rows from those behind some positions, each with the same probability.

    Args:
        table: The table of served features.
        since: The positions up to which rows were considered before, by partition.
        ends: The positions behind the table's rows.
        served_before_us: The time, in microseconds, up to which rows were served that are sampled. The first later row,
            and all rows behind it, wait for another call.
        most: The most rows that are drawn.
        hides: Returns whether a row with this commit, these inputs and outputs is of an erased key, and left out.
        chance: Draws.

    Raises `UnavailableError` if the object store doesn't answer.
    """
    spans = {p: (max(since.get(p, 0), end - SPAN), end) for p, end in ends.items() if since.get(p, 0) < end}
    if not spans:
        return Drawn((), dict(since))
    least = min(first for first, _ in spans.values())
    files = table.files_within(OFFSET, least, max(end for _, end in spans.values()))
    if not files:
        return Drawn((), {**since, **{p: end for p, (_, end) in spans.items()}})
    within = pl.any_horizontal(
        (pl.col(PARTITION) == p) & (pl.col(OFFSET) >= first) & (pl.col(OFFSET) < end)
        for p, (first, end) in spans.items()
    )
    found = frame_of(files, table.options(), [*POSITION, SERVED_AT], within)
    until = {p: end for p, (_, end) in spans.items()}
    served = found[SERVED_AT].to_physical().to_numpy()
    early = np.ones(len(found), np.bool_)
    for partition, (_, end) in spans.items():
        own = (found[PARTITION] == partition).to_numpy()
        waiting = found[OFFSET].to_numpy()[own & (served > served_before_us)]
        until[partition] = int(waiting.min(initial=end))
        early &= ~own | (found[OFFSET].to_numpy() < until[partition])
    settled = np.flatnonzero(early).tolist()
    chosen = found[sorted(chance.sample(settled, most)) if len(settled) > most else settled].select(POSITION)
    until = {**since, **until}
    if not len(chosen):
        return Drawn((), until)
    whole = frame_of(files, table.options(), SCHEMA.names, within & pl.col(OFFSET).is_in(chosen[OFFSET].implode()))
    rows = whole.join(chosen, on=list(POSITION), how="semi").sort(POSITION)
    rows = rows.with_columns(pl.col(SERVED_AT, TIME).to_physical())
    shown = [row for row in rows.to_dicts() if not hides(row["commit"], row["inputs"], row["outputs"])]
    return Drawn([_row(row) for row in shown], until)


def _row(row: Mapping[str, Any]) -> ServedRow:
    return ServedRow(
        served_us=row[SERVED_AT],
        at_us=row[TIME],
        branch=row["branch"],
        commit=row["commit"],
        query=row["query"],
        row=row[NUMBER],
        inputs=orjson.loads(row["inputs"]),
        outputs=orjson.loads(row["outputs"]),
        partition=row[PARTITION],
        offset=row[OFFSET],
    )
