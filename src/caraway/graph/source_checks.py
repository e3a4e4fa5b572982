"""Checks of sources and sinks that need their dataset, as pure functions over specs.

The validation of graphs checks that `cdc` goes with the keys, and what a dataset with sources may have beside them.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import chain

from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    INT,
    DataType,
    base_type,
    strip_optional,
    type_name,
    unrestricted,
)
from caraway.dtypes.values import conforms
from caraway.errors import (
    CommitError,
    CommitTypeError,
    DefinitionError,
    DefinitionTypeError,
    InvalidExprException,
    meant,
)
from caraway.expr.inference import infer_nullable
from caraway.expr.printer import print_node
from caraway.expr.references import columns_of
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Computed, Constant, SinkSpec, SourceSpec, distinct_sources
from caraway.graph.specs import DatasetSpec, Graph

Fields = Mapping[str, DataType]


def check_source(dataset: DatasetSpec, source: SourceSpec) -> None:
    """Check a source against its dataset.

    Raises:
        CommitError: preproc, where, sample or the connector isn't possible; the text has dataset, source and part.
        CommitTypeError: An expression is of another type than its field.
    """
    where = f"dataset {dataset.name}, source {source.connector.identifier}"
    _check_text(where, source.connector)
    source.connector.check_source(where)
    if source.connector.captures:
        _check_captured(where, dataset, source)
    fields = {f.name: f.dtype for f in dataset.fields}
    made: set[str] = set()
    for name, value in source.preproc:
        label = f"{where}, preproc of {name}"
        if name not in fields:
            raise CommitError(f"{label}: there is no such field{meant(name, fields)}; fields: {', '.join(fields)}")
        match value:
            case Constant():
                _check_constant(label, value, fields[name])
            case Computed():
                if name == dataset.timestamp:
                    raise CommitError(
                        f"{label}: it is the timestamp, which eval can't make; use ref(...) or a constant"
                    )
                if not isinstance(value.by, PythonFunction):
                    later = {n for n, _ in source.preproc} - made
                    _check_made(label, value, fields, later, fields[name])
        made.add(name)
    if source.where is not None and not isinstance(source.where.by, PythonFunction):
        _check_where(f"{where}, where", source.where, fields)
    _check_sample(where, dataset, source)


def check_sink(dataset: DatasetSpec, sink: SinkSpec) -> None:
    """Check a sink against its dataset. Raises `CommitError` if the connector can't be written to."""
    where = f"dataset {dataset.name}, sink {sink.connector.identifier}"
    _check_text(where, sink.connector)
    sink.connector.check_sink(where)
    if sink.connector.needs_keys and not dataset.keys:
        raise CommitError(
            f"{where}: a row is written under its key, and the dataset has no keys; "
            "declare them by field(key=True), or write to a table"
        )


def check_systems(graph: Graph) -> None:
    """Check that a name stands for one system throughout a graph.

    Raises `CommitError` if two sources or sinks give other settings for the same name.
    """
    for message in conflicting_systems(graph):
        raise CommitError(message)


def conflicting_systems(graph: Graph) -> Iterator[str]:
    """Yield a message for each use of a name with other settings than before."""
    seen: dict[str, tuple[str, object]] = {}
    for dataset in graph.datasets:
        connectors = chain((s.connector for s in dataset.sources), (s.connector for s in dataset.sinks))
        for connector in connectors:
            name, settings = connector.system_name, connector.settings
            if settings is None:
                continue
            first, known = seen.setdefault(name, (dataset.name, settings))
            if known != settings:
                yield (
                    f"dataset {dataset.name}: {connector.kind} {name} has other settings than what is called "
                    f"{name} in dataset {first}; names of connectors are unique: use one object, or another name"
                )


def _check_text(where: str, part: object, label: str = "") -> None:
    """Check that no text of a connector or of its system has a null character.

    The operating system's calls for paths and host names, and the protocols of most systems, end a text there.
    """
    match part:
        case str():
            if "\0" in part:
                # The text may be a password, so it isn't shown.
                place = where.replace("\0", "\\0")
                raise CommitError(
                    f"{place}: {label} contains a null character (\\0), which no system takes; leave it out"
                )
        case tuple():
            for inner in part:
                _check_text(where, inner, label)
        case _ if dataclasses.is_dataclass(part):
            for member in dataclasses.fields(part):
                _check_text(where, getattr(part, member.name), member.name)


def _check_captured(where: str, dataset: DatasetSpec, source: SourceSpec) -> None:
    """Check that the changes of a table can be carried over to a dataset: also deletes, and the truncate of the table.

    A delete often comes with the key of the row alone. A truncate comes without any row; the rows that the dataset has
    are deleted by their keys.
    """
    if not dataset.keys:
        raise CommitError(
            f"{where}: the changes of a table are updates and deletes, too, so the dataset needs keys: "
            "field(key=True) for the columns of the table's primary key"
        )
    computed = {name for name, made in source.preproc if isinstance(made, Computed)}
    if keys := [name for name in dataset.keys if name in computed]:
        raise CommitError(
            f"{where}: the key {', '.join(keys)} is computed by preproc, but deletes come with the columns of the "
            "table's key alone; use columns of the table, or ref(...), as keys"
        )
    if len(distinct_sources(dataset.sources)) > 1:
        raise CommitError(
            f"{where}: the dataset has other sources, too; if the table is truncated, the rows of the dataset are "
            "deleted, so all must come from the table: use a dataset for each source, and a pipeline with union"
        )


def _check_constant(where: str, constant: Constant, field: DataType) -> None:
    inner, value = strip_optional(field), constant.value
    if constant.dtype == DATETIME:
        fits = base_type(field) == DATETIME
    else:
        # An int constant fits a field of type datetime: when rows are made, the constant is cast as a number in a
        # payload would be, which is read as the time since the epoch.
        fits = (constant.dtype == INT and inner == DATETIME) or conforms(value, inner)
    if not fits:
        raise CommitError(
            f"{where}: the constant {value!r} is {type_name(constant.dtype)}, the field is {type_name(field)}; "
            "constants aren't converted"
        )


def _check_made(where: str, computed: Computed, fields: Fields, unmade: set[str], field: DataType) -> None:
    visible = {name: dtype for name, dtype in fields.items() if name not in unmade}
    found = _infer(where, computed, {**visible, **dict(computed.schema)})
    # The field may be restricted (between, oneof, regex). The type of an expression doesn't show that its values meet a
    # restriction, so the base type is accepted here, and each value is checked when rows come in.
    allowed = {field, unrestricted(field)}
    if found not in allowed:
        raise CommitTypeError(
            f"{where}: {_spelled(computed)} is {_type(found)}, the field is {type_name(field)}; "
            "expressions have to give the type of the field"
        )


def _check_where(where: str, computed: Computed, fields: Fields) -> None:
    for name, dtype in computed.schema:
        if name in fields and fields[name] != dtype:
            raise CommitTypeError(
                f"{where}: the schema has {name} as {type_name(dtype)}, the dataset as {type_name(fields[name])}; "
                "where runs on what preproc made, so leave it out"
            )
    found = _infer(where, computed, {**fields, **dict(computed.schema)})
    if found != BOOL:
        raise CommitTypeError(f"{where}: {_spelled(computed)} is {_type(found)}, bool is expected")


def _infer(where: str, computed: Computed, visible: Fields) -> DataType | None:
    assert not isinstance(computed.by, PythonFunction)  # noqa: S101 (functions have no type)
    if unknown := [name for name in columns_of(computed.by) if name not in visible]:
        raise CommitError(
            f"{where}: {_spelled(computed)} reads {', '.join(unknown)}, which is neither a field that the payload has "
            f"nor in the schema of eval{meant(unknown[0], visible)}; there are: {', '.join(visible) or 'none'}"
        )
    try:
        return infer_nullable(computed.by, visible)
    except (DefinitionTypeError, TypeError) as error:
        raise CommitTypeError(f"{where}: {error}") from None
    except (DefinitionError, InvalidExprException) as error:
        raise CommitError(f"{where}: {error}") from None


def _spelled(computed: Computed) -> str:
    assert not isinstance(computed.by, PythonFunction)  # noqa: S101 (functions have no printed form)
    return print_node(computed.by)


def _type(found: DataType | None) -> str:
    return "null" if found is None else type_name(found)


def sample_columns(dataset: DatasetSpec, source: SourceSpec) -> tuple[str, ...]:
    """Return the columns that a source is sampled by, sorted by name.

    These are the given columns; else the keys or, in a dataset without keys, all fields but the timestamp and those
    that preproc makes.
    """
    if source.sample is not None and source.sample.using:
        return tuple(sorted(source.sample.using))
    made = {name for name, _ in source.preproc}
    candidates = dataset.keys or tuple(f.name for f in dataset.fields if not f.timestamp)
    return tuple(sorted(name for name in candidates if name not in made))


def _check_sample(where: str, dataset: DatasetSpec, source: SourceSpec) -> None:
    if source.sample is None:
        return
    fields = [f.name for f in dataset.fields]
    made = {name for name, _ in source.preproc}
    for name in source.sample.using:
        if name not in fields:
            raise CommitError(
                f"{where}, sample: there is no field {name}{meant(name, fields)}; fields: {', '.join(fields)}"
            )
        if name == dataset.timestamp:
            raise CommitError(f"{where}, sample: {name} is the timestamp; use other columns")
        if name in made:
            raise CommitError(f"{where}, sample: {name} is made by preproc; use columns of the payload")
    if not sample_columns(dataset, source):
        raise CommitError(
            f"{where}, sample: no column is left to sample by: keys and fields that preproc makes don't count; "
            "name columns with Sample(rate, using=[...])"
        )
