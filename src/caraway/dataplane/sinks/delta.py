"""The writer of Delta tables in S3: each batch is one commit of the table, which also has the position of the sink.

The position is an application transaction for each partition, as in the archive
(`caraway.dataplane.archive.store.tables`). Delta takes a commit as a whole or not at all, and refuses one whose
transactions another commit has meanwhile. So each batch is in the table exactly once, whoever writes and whenever a
writer dies.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, WriterProperties
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.writer import write_deltalake

from caraway.dataplane.archive.store.columns import column_array, columns_of
from caraway.dataplane.sinks.changes import last_of_each_key
from caraway.dataplane.sinks.replays import REPLAYED
from caraway.dataplane.sinks.rows import TableRow, hash_column, table_rows
from caraway.dataplane.sinks.writer import EXACTLY_ONCE, Batch, SignIn, Writing
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import S3Connector
from caraway.graph.plan.model import SinkPlan

# The column of a merge's source that says whether the row is to be deleted. The table doesn't have it.
DELETED = "__caraway_deleted__"
# The table keeps replaced files for this time, since readers may still be using them.
KEPT = "interval 7 days"
# By default a request to S3 is retried for three minutes. Fewer retries suffice, since the worker retries the batch
# anyway, and reports the error meanwhile.
RETRIES = {"max_retries": "3", "retry_timeout": "30s"}
DESCRIPTION = "Written by Caraway from the dataset {dataset}; changes by others are lost."

_WRITER = WriterProperties(compression="ZSTD", compression_level=1)
_AFTER_COMMIT = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)


class DeltaWriter:
    """Writes the rows of a dataset to a table: those of a keyed one by key, those of others by a hash column."""

    guarantee = EXACTLY_ONCE
    remembers = False

    def __init__(self, writing: Writing) -> None:
        """Open the table, and create it if there is none.

        Raises `UnavailableError` if S3 doesn't answer or refuses, or another program has made the table.
        """
        self._writing, plan = writing, writing.plan
        self._keyed = bool(plan.topic.schema.keys)
        self._hash = hash_column(writing.product)
        renames = dict(plan.sink.renames)
        arrow = columns_of(plan.topic.schema).arrow
        self._types = [(column.dtype, arrow.field(column.name).type) for column in plan.topic.schema.columns]
        self._time_type = arrow.field(columns_of(plan.topic.schema).time).type
        names = [column.name for column in plan.topic.schema.columns]
        self._names = [renames.get(name, name) for name in names]
        self._time = renames.get(plan.topic.schema.timestamp, plan.topic.schema.timestamp)
        self._keys = [renames.get(key.name, key.name) for key in plan.topic.schema.keys] or [self._hash]
        fields = [*zip(self._names, (kind for _, kind in self._types), strict=True), (self._time, self._time_type)]
        self._schema = pa.schema([*fields, *([] if self._keyed else [(self._hash, pa.string())])])
        self._url, self._options = address_of(plan)
        self._table = self._opened()

    def positions(self) -> Mapping[int, int]:
        """Return the offsets that the last commit of the table has."""
        with _translated_errors(self._url):
            history = self._table.transaction_version(self._application(None))
            partitions = list(range(history or 0))
            # The number of the last dead letter that was sent again is stored like the offset of a partition, whose
            # number is `REPLAYED`.
            names = [*partitions, *([REPLAYED] if self._table.transaction_version(self._application(REPLAYED)) else [])]
            return {p: self._table.transaction_version(self._application(p)) or 0 for p in names}

    def write(self, batch: Batch) -> None:
        """Write changes in one commit; see `SinkWriter.write`."""
        made = table_rows(self._writing.plan, last_of_each_key(batch.changes))
        if not made:
            return
        count = max(batch.reached) + 1
        transactions = [Transaction(self._application(p), offset) for p, offset in sorted(batch.reached.items())]
        # The number of partitions is stored as a transaction as well, so that positions can be read without knowing the
        # topic.
        transactions.append(Transaction(self._application(None), count))
        properties = CommitProperties(app_transactions=transactions)
        rows = self._rows(made)
        is_new = not self.positions()
        with _translated_errors(self._url):
            if is_new:
                # The first write replaces all rows of the table, since those of an earlier sink of this name may not be
                # in the dataset any more.
                self._overwrite(rows, properties)
            elif not any(rows[DELETED].to_pylist()) and not self._keyed:
                self._append(rows, properties)
            else:
                self._merge(rows, properties)
        batch.sent = len(batch.changes)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _opened(self) -> DeltaTable:
        dataset = self._writing.plan.dataset.name
        description = DESCRIPTION.format(dataset=dataset)
        with _translated_errors(self._url):
            try:
                table = DeltaTable(self._url, storage_options=self._options)
            except TableNotFoundError:
                return DeltaTable.create(
                    self._url,
                    self._schema,
                    mode="ignore",
                    name=dataset,
                    description=description,
                    configuration={"delta.deletedFileRetentionDuration": KEPT},
                    storage_options=self._options,
                )
            if table.metadata().description != description:
                raise UnavailableError(f"{self._url} is a table already, which no sink of {dataset} has made")
            return table

    def _overwrite(self, rows: pa.Table, properties: CommitProperties) -> None:
        kept = rows.filter(pa.compute.invert(rows[DELETED])).drop_columns([DELETED])
        write_deltalake(
            self._table,
            kept,
            mode="overwrite",
            schema_mode="overwrite",
            writer_properties=_WRITER,
            commit_properties=properties,
            post_commithook_properties=_AFTER_COMMIT,
        )

    def _append(self, rows: pa.Table, properties: CommitProperties) -> None:
        write_deltalake(
            self._table,
            rows.drop_columns([DELETED]),
            mode="append",
            writer_properties=_WRITER,
            commit_properties=properties,
            post_commithook_properties=_AFTER_COMMIT,
        )

    def _merge(self, rows: pa.Table, properties: CommitProperties) -> None:
        same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self._keys)
        gone = f"source.{_quoted(DELETED)}"
        values = {_quoted(name): f"source.{_quoted(name)}" for name in self._schema.names}
        (
            self._table.merge(
                rows,
                same,
                source_alias="source",
                target_alias="target",
                writer_properties=_WRITER,
                commit_properties=properties,
                post_commithook_properties=_AFTER_COMMIT,
            )
            .when_matched_delete(predicate=gone)
            .when_matched_update(values, predicate=f"NOT {gone}")
            .when_not_matched_insert(values, predicate=f"NOT {gone}")
            .execute()
        )

    def _rows(self, made: Sequence[TableRow]) -> pa.Table:
        columns = zip(*(each.row.values for each in made), strict=True)
        arrays: list[Any] = [
            column_array(list(values), dtype) for values, (dtype, _) in zip(columns, self._types, strict=True)
        ]
        arrays.append(pa.array([each.row.time_us for each in made], pa.int64()).cast(self._time_type))
        if not self._keyed:
            arrays.append(pa.array([each.hash for each in made], pa.string()))
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        return table.append_column(DELETED, pa.array([each.deleted for each in made], pa.bool_()))

    def _application(self, partition: int | None) -> str:
        name = "partitions" if partition is None else str(partition)
        return f"caraway/{self._writing.name}/{name}"


def address_of(plan: SinkPlan) -> tuple[str, dict[str, str]]:
    """Return the address of a sink's table, and the options with which it is opened.

    Everything else comes from the environment: AWS_ENDPOINT_URL, AWS_REGION, keys or the identity of the machine.
    """
    assert isinstance(plan.sink.connector, S3Connector)  # noqa: S101 (the planner chooses the writer)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    allowed = {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {}
    return plan.target, {**RETRIES, **allowed}


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that S3 shows whether the table exists.

    Raises:
        CommitError: S3 doesn't answer, or refuses.
    """
    del sign_in  # A sink has no credentials of its own.
    url, options = address_of(plan)
    try:
        # `is_deltatable` would hold Python's global lock, and so block all requests, until S3 answers.
        with suppress(TableNotFoundError):
            DeltaTable(url, storage_options=options)
    except (DeltaError, OSError) as error:
        raise CommitError(f"{url} can't be used: {error}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _translated_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        raise UnavailableError(f"the table {url} can't be written: {error}") from error
