"""The writer of Iceberg tables: each batch is one commit of a table, which also has the position of the sink.

The position is in the summary of each snapshot that a sink has made, and in a property of the table, for the time when
these snapshots have expired. A catalog takes a commit only if the table is still the one that was loaded, so each batch
is in the table exactly once, whoever writes and whenever a writer dies.

Rows of keys that have changed are removed by writing their files anew (copy-on-write), since all engines read that.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import FileScanTask, Table, Transaction

from caraway.dataplane.archive.store.columns import column_array, columns_of
from caraway.dataplane.objects.iceberg import open_catalog, table_identifier, translated_errors
from caraway.dataplane.sinks.changes import last_of_each_key
from caraway.dataplane.sinks.rows import TableRow, hash_column, table_rows
from caraway.dataplane.sinks.writer import EXACTLY_ONCE, Batch, SignIn, Writing
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import IcebergConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import IcebergSystem

# The column of rows to be written that says whether the row is to be removed. The table doesn't have it.
DELETED = "__caraway_deleted__"
DESCRIPTION = "Written by Caraway from the dataset {dataset}; changes by others are lost."
# The target size of data files. A file whose rows are written anew must fit into memory a few times.
FILE_BYTES = 32 * 1024 * 1024
# When data files are replaced, their remaining rows and the new rows are collected until they exceed this size, and
# then written together, so that small files are merged into larger ones.
HELD_BYTES = 64 * 1024 * 1024
PROPERTIES = {
    "write.target-file-size-bytes": str(FILE_BYTES),
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}


class IcebergWriter:
    """Writes the rows of a dataset to a table: those of a keyed one by key, those of others by a hash column."""

    guarantee = EXACTLY_ONCE
    remembers = False

    def __init__(self, writing: Writing) -> None:
        """Open the table, and create it if there is none.

        Raises `UnavailableError` if the catalog doesn't answer or refuses, or another program has made the table.
        """
        self._writing, plan = writing, writing.plan
        self._keyed = bool(plan.topic.schema.keys)
        self._hash = hash_column(writing.product)
        renames = dict(plan.sink.renames)
        arrow = columns_of(plan.topic.schema).arrow
        self._types = [(column.dtype, arrow.field(column.name).type) for column in plan.topic.schema.columns]
        self._time_type = arrow.field(columns_of(plan.topic.schema).time).type
        names = [renames.get(column.name, column.name) for column in plan.topic.schema.columns]
        time = renames.get(plan.topic.schema.timestamp, plan.topic.schema.timestamp)
        self._keys = [renames.get(key.name, key.name) for key in plan.topic.schema.keys] or [self._hash]
        fields = [*zip(names, (kind for _, kind in self._types), strict=True), (time, self._time_type)]
        self._schema = pa.schema([*fields, *([] if self._keyed else [(self._hash, pa.string())])])
        self._property = f"{writing.product}.positions.{writing.name}"
        self._description = DESCRIPTION.format(dataset=plan.dataset.name)
        self._table = self._opened(open_sink(plan, writing.sign_in))
        self._positions = self._written()

    def positions(self) -> Mapping[int, int]:
        """Return the offsets that the newest commit of this sink has."""
        return self._positions

    def write(self, batch: Batch) -> None:
        """Write changes in one commit; see `SinkWriter.write`."""
        made = table_rows(self._writing.plan, last_of_each_key(batch.changes))
        if not made:
            return
        with translated_errors(self._where):
            self._refresh()
            # Another server has written to the table since this writer was opened. After the error the sink is opened
            # again, and goes on behind the position that the table has now.
            if (there := self._written()) != self._positions:
                raise UnavailableError(f"{self._where} was written by another server, up to {dict(there)}")
            is_new = not self._positions
            position = json.dumps({str(partition): offset for partition, offset in sorted(batch.reached.items())})
            properties = {self._property: position}
            with self._table.transaction() as transaction:
                if is_new:
                    # At its first write a sink takes over the table of an earlier sink of its name. The columns are
                    # replaced here, and all rows are replaced below, since the dataset may not have the earlier rows
                    # any more.
                    self._reshape(transaction)
                transaction.set_properties(properties)
                self._replace(transaction, self._rows(made), properties, everything=is_new)
        self._positions = dict(batch.reached)
        batch.sent = len(batch.changes)

    def close(self) -> None:
        """Do nothing: connections are those of a pool, which ends with the catalog."""

    @property
    def _where(self) -> str:
        return f"the table {self._writing.plan.target}"

    def _opened(self, catalog: Catalog) -> Table:
        identifier = table_identifier(self._writing.plan.target)
        with translated_errors(self._where):
            try:
                table = catalog.load_table(identifier)
            except NoSuchTableError:
                catalog.create_namespace_if_not_exists(identifier[:-1])
                table = catalog.create_table_if_not_exists(
                    identifier, self._schema, properties={**PROPERTIES, "comment": self._description}
                )
        if table.properties.get("comment") != self._description:
            raise UnavailableError(
                f"{self._where} is there already, and no sink of {self._writing.plan.dataset.name} has made it"
            )
        return _without_retries(table)

    def _refresh(self) -> None:
        self._table = _without_retries(self._table.catalog.load_table(self._table.name()))

    def _written(self) -> Mapping[int, int]:
        """Return the position in the table."""
        snapshot = self._table.current_snapshot()
        found: str | None = None
        # Others may have made the newest snapshots, for instance to compact the table. So the loop finds the newest
        # snapshot that this sink has made.
        while snapshot is not None and found is None:
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            found = summary.get(self._property)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        if found is None:
            found = self._table.properties.get(self._property, "{}")
        return {int(partition): int(offset) for partition, offset in json.loads(found).items()}

    def _reshape(self, transaction: Transaction) -> None:
        """Make the columns of the table those of the sink; columns of another type or name are replaced."""
        wanted = {field.name: field.type for field in self._schema}
        there = {field.name: field.type for field in self._table.schema().as_arrow()}
        made = {field.name: field.type for field in _as_stored(self._schema)}
        other = [name for name, kind in there.items() if made.get(name) != kind]
        if other:
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in other:
                    update.delete_column(name)
        if missing := [name for name in wanted if name not in there or name in other]:
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema([self._schema.field(name) for name in missing]))

    def _replace(self, transaction: Transaction, made: Any, properties: Mapping[str, str], *, everything: bool) -> None:
        """Write rows, in one snapshot, and remove those that they replace."""
        kept = made.filter(pa.compute.invert(made.column(DELETED))).drop_columns([DELETED])
        gone = made if self._keyed else made.filter(made.column(DELETED))
        removed, rewritten = self._removed(gone, everything=everything)
        if not removed:
            transaction.append(kept, snapshot_properties=dict(properties))
            return
        snapshot = transaction.update_snapshot(snapshot_properties=dict(properties)).overwrite()
        for task in removed:
            snapshot.delete_data_file(task.file)
        for rows in _joined(chain(rewritten, [kept])):
            if not self._writing.keep():
                raise UnavailableError(f"{self._where} is written by another server now")
            for file in _dataframe_to_data_files(transaction.table_metadata, rows, self._table.io):
                snapshot.append_data_file(file)
        snapshot.commit()

    def _removed(self, gone: Any, *, everything: bool) -> tuple[list[FileScanTask], Iterator[Any]]:
        """Return the files with rows of some keys, and their other rows, which are read when they are asked for."""
        if everything:
            return list(self._table.scan().plan_files()), iter(())
        if not len(gone):
            return [], iter(())
        keys = gone.select(self._keys)
        scan = self._table.scan(row_filter=_range_of(self._keys[0], keys.column(0)), selected_fields=tuple(self._keys))
        schema = self._table.schema()
        found: list[tuple[FileScanTask, Any]] = []
        wanted = set(_values(keys))
        for task in scan.plan_files():
            some = self._read(task, schema.select(*self._keys))
            mask = np.fromiter((key not in wanted for key in _values(some.select(self._keys))), bool, len(some))
            if not mask.all():
                found.append((task, mask))
        others = (self._read(task, schema).filter(pa.array(mask)) for task, mask in found if mask.any())
        return [task for task, _ in found], others

    def _read(self, task: FileScanTask, schema: Any) -> Any:
        """Return all rows of a file."""
        return ArrowScan(
            table_metadata=self._table.metadata,
            io=self._table.io,
            projected_schema=schema,
            row_filter=AlwaysTrue(),
        ).to_table(tasks=[task])

    def _rows(self, made: Sequence[TableRow]) -> Any:
        columns = zip(*(each.row.values for each in made), strict=True)
        arrays: list[Any] = [
            column_array(list(values), dtype) for values, (dtype, _) in zip(columns, self._types, strict=True)
        ]
        arrays.append(pa.array([each.row.time_us for each in made], pa.int64()).cast(self._time_type))
        if not self._keyed:
            arrays.append(pa.array([each.hash for each in made], pa.string()))
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        return table.append_column(DELETED, pa.array([each.deleted for each in made], pa.bool_()))


def open_sink(plan: SinkPlan, sign_in: SignIn) -> Catalog:
    """Open the catalog of a sink. Tables of a sink are in S3, and not in folders of a server's machine."""
    connector = plan.sink.connector
    assert isinstance(connector, IcebergConnector)  # noqa: S101 (the planner chooses the writer)
    system = connector.system
    assert isinstance(system, IcebergSystem)  # noqa: S101 (the planner refuses others)
    endpoint = sign_in.endpoints.get(system.name) or os.environ.get("AWS_ENDPOINT_URL_S3")
    return open_catalog(system, sign_in.resolve, endpoint=endpoint or os.environ.get("AWS_ENDPOINT_URL"))


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that the catalog shows whether the table exists.

    Raises:
        CommitError: The catalog doesn't answer, or refuses.
    """
    try:
        catalog = open_sink(plan, sign_in)
        with translated_errors(f"the table {plan.target}"):
            catalog.table_exists(table_identifier(plan.target))
    except UnavailableError as error:
        raise CommitError(str(error)) from None


def _without_retries(table: Table) -> Table:
    """Return a table that doesn't commit again what another writer's commit has refused: the position is another."""
    none = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": none})
    return table


def _as_stored(schema: Any) -> Any:
    """Return a schema with the types that a table has in Arrow for its own."""
    return schema_to_pyarrow(assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema)))


def _range_of(name: str, values: Any) -> BooleanExpression:
    """Return the condition of all rows that may have one of some values, by which files are left out."""
    if not (pa.types.is_integer(values.type) or pa.types.is_string(values.type)) or values.null_count:
        return AlwaysTrue()
    found = pa.compute.min_max(values).as_py()
    make: Any = GreaterThanOrEqual, LessThanOrEqual
    return And(make[0](name, found["min"]), make[1](name, found["max"]))


def _values(table: Any) -> Iterator[object]:
    """Yield the rows of a table as values that are equal and hashable."""
    columns = [column.to_pylist() for column in table.columns]
    for values in zip(*columns, strict=True):
        yield values if all(isinstance(value, (int, str, bytes)) for value in values) else repr(values)


def _joined(tables: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of tables as larger ones, so that the files of small changes don't stay small."""
    held: list[Any] = []
    for table in tables:
        if len(table):
            held.append(table)
        if sum(each.nbytes for each in held) > HELD_BYTES:
            yield pa.concat_tables(held, promote_options="permissive")
            held = []
    if held:
        yield pa.concat_tables(held, promote_options="permissive")
