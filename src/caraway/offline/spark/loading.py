"""The tables of an index, built by Spark's tasks (docs/inside/rocksdb_index.md, "Loads").

Tasks read parts of the topic's records and divide them by ranges of keys. Others build the index of a division each, by
the code that writes a server's index, and write it to the object store as tables.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import polars as pl
import pyarrow as pa

from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.reading import ArchivedTopics, Cuts, Part
from caraway.offline.loads.division import division_tables
from caraway.offline.loads.manifest import TABLES, LoadIndex, LoadTable
from caraway.offline.loads.ranges import KeyOrders, bounds_of
from caraway.offline.queries.context import QueryContext
from caraway.offline.queries.model import OfflineRequest, folder_of
from caraway.offline.spark.jobs import by_division, numbers, waited
from caraway.offline.spark.opened import TaskContext, kept, opened
from caraway.offline.spark.pieces import RECORDS, SCHEMA, Piece, as_batch, divided, of_batches
from caraway.offline.spark.session import scratch_session
from caraway.process.scratch import ScratchFolder
from caraway.process.settings.settings import Settings
from caraway.state.plans import Planned

Batches = Iterator[pa.RecordBatch]

# The records that a task reads at a time; with the copies that dividing them makes they take some 300 MB.
PART_RECORDS = 1_000_000
# The records of a division, about. Its task, which sorts them in memory, takes some 620 MB, and the server stops for 1
# to 20 ms for each table that it takes, so divisions should be neither large nor many.
DIVISION_RECORDS = 1_500_000
# The parts from whose keys the bounds of divisions are taken, and the keys of each division: the size of a division
# then varies by a tenth.
SAMPLED_PARTS, SAMPLED_KEYS = 8, 100
_SEED = 20_260_101
_TABLES = "name string, digest string, bytes long, records long"
_TABLES_ARROW = pa.schema(
    [("name", pa.string()), ("digest", pa.string()), ("bytes", pa.int64()), ("records", pa.int64())]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWork:
    """A load on Spark, as plain data that every task is given.

    Attributes:
        name: A name that no other run has.
        query_id: The id of the request.
        request: The request.
        commit: The commit that has the index.
        planned: The graph of the commit, and its plan.
        cuts: The offsets up to which the topic is read.
        index: The index.
        parts: The parts of the topic's records that tasks read.
        bounds: The bounds of divisions.
    """

    name: str
    query_id: str
    request: OfflineRequest
    commit: str
    planned: Planned
    cuts: Cuts
    index: LoadIndex
    parts: tuple[Part, ...]
    bounds: tuple[bytes, ...]


def tables_on_spark(
    settings: Settings, context: QueryContext, query_id: str, index: LoadIndex, interrupted: Callable[[], bool]
) -> list[LoadTable] | None:
    """Build the tables of an index, and write them to the object store; return None if the work was interrupted.

    Args:
        settings: The settings of the server.
        context: The request.
        query_id: Its id.
        index: The index.
        interrupted: Returns whether the work is to end.

    Raises:
        UnavailableError: Something doesn't answer.
        CarawayError: A task failed.
    """
    parts = parts_of(index)
    with scratch_session(settings) as spark:
        divisions = divisions_for(index.found.rows // index.load.shards, spark.sparkContext.defaultParallelism)
        work = LoadWork(
            name=f"{query_id}/{os.getpid()}",
            query_id=query_id,
            request=context.request,
            commit=context.commit,
            planned=context.planned,
            cuts=context.cuts,
            index=index,
            parts=parts,
            bounds=sampled_bounds(context.source, index, parts, divisions),
        )
        pieces = numbers(spark, len(parts)).mapInArrow(partial(divide_parts, work), SCHEMA)
        tables = by_division(pieces, len(work.bounds) + 1, "kind").mapInArrow(partial(build_tables, work), _TABLES)
        rows = waited(spark, tables.collect, interrupted)
    return None if rows is None else [LoadTable(**row.asDict()) for row in rows]


def parts_of(index: LoadIndex) -> tuple[Part, ...]:
    """Return the parts of a topic's records that a load reads: files, and the spans of its partitions."""
    parts = index.found.in_pieces(PART_RECORDS)
    return tuple(part for part in parts if part.files or index.load.holds(part.partition))


def divisions_for(records: int, processors: int) -> int:
    """Return the number of divisions for so many records."""
    return max(2 * processors, -(-records // DIVISION_RECORDS))


def sampled_bounds(
    source: ArchivedTopics, index: LoadIndex, parts: Sequence[Part], divisions: int
) -> tuple[bytes, ...]:
    """Return the bounds of about so many divisions, from the keys of some parts.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    keys = index.plan.schema.keys
    chosen = parts[:: max(len(parts) // SAMPLED_PARTS, 1)][:SAMPLED_PARTS]
    sample: list[bytes] = []
    for part in chosen:
        rows = source.read(index.topic, index.found, part, [key.name for key in keys])
        size = min(rows.height, max(divisions * SAMPLED_KEYS // len(chosen), 1))
        sample += KeyOrders(keys, rows.sample(size, seed=_SEED)).sample()
    return bounds_of(sample, divisions)


def divide_parts(work: LoadWork, batches: Batches) -> Batches:
    """Read the parts whose numbers the rows have, and divide their records by ranges of keys."""
    source = _task(work).context.source
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for piece in divided_records(source, work.index, work.parts[number], work.bounds):
                yield as_batch(piece)


def divided_records(source: ArchivedTopics, index: LoadIndex, part: Part, bounds: Sequence[bytes]) -> Iterator[Piece]:
    """Read a part of a topic's records, and yield those of each division.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    plan, load = index.plan, index.load
    rows = source.read(index.topic, index.found, part, [column.name for column in plan.schema.columns])
    if load.shards > 1:
        rows = rows.filter(pl.col(columns_of(index.topic.schema).partition) % load.shards == load.number)
    if rows.height:
        yield from divided(rows, KeyOrders(plan.schema.keys, rows).divisions(bounds), RECORDS)


def build_tables(work: LoadWork, batches: Batches) -> Batches:
    """Build the index of each division, and write its tables to the object store."""
    task, index = _task(work), work.index
    for division, pieces in groupby(of_batches(batches), key=lambda piece: piece.division):
        frames = (piece.frame for piece in pieces)
        with ScratchFolder("load") as scratch:
            tables = division_tables(index.plan, index.topic, frames, folder=scratch.path, erased=task.context.erased)
            for number, table in enumerate(tables):
                # An attempt that counts as dead may still write, so the tables of each have names of their own.
                name = f"{TABLES}/{division}-{number}-{secrets.token_hex(4)}"
                digest = task.objects.put(table.path, f"{folder_of(work.query_id)}/{name}")
                row = {"name": name, "digest": digest, "bytes": table.path.stat().st_size, "records": table.records}
                yield pa.RecordBatch.from_pylist([row], schema=_TABLES_ARROW)


def _task(work: LoadWork) -> TaskContext:
    def make(closing: ExitStack) -> TaskContext:
        return closing.enter_context(opened(work.planned, work.request, work.commit, work.cuts))

    return kept(work.name, TaskContext, make)
