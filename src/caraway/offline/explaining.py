"""The explanation of an offline query: what it reads, where it is computed and why, and how long that takes, about."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from caraway.dataplane.index.storage.intervals import has_max_event_time
from caraway.dtypes.types import DecimalType, base_type
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.offline.history.aggregates import EXTREMES
from caraway.offline.history.windows import is_computable
from caraway.offline.queries.model import Execution
from caraway.offline.sizes import DatasetSize

MIB = 1 << 20
# The name of the object with the explanation, in the query's folder of the object store.
NAME = "explain.json"
# Measured seconds to read and sort a record, to write a record into an index that is built for the query, and to start
# Spark (decisions 40 and 41).
RECORD_SECONDS, INDEX_SECONDS, SPARK_SECONDS = 0.5e-6, 20e-6, 14.0


class LookupExplanation(Struct, frozen=True):
    """A dataset that is looked up.

    Attributes:
        dataset: The dataset.
        topic: The topic that has its records, and whose table has those that are archived.
        records: How many records are read, as far as it is known.
        archived_records: How many of them are in the table.
        archived_files: In how many files.
        memory_mb: The memory for the records, about.
        columns: The fields that are computed in columns.
        index: The fields that are read from an index which the query builds.
        undecided: The fields that are computed in columns unless a record is found that doesn't allow it: an input that
            ends, for an extreme, or a decimal beyond 64 bits.
    """

    dataset: str
    topic: str
    records: int
    archived_records: int
    archived_files: int
    memory_mb: float
    columns: tuple[str, ...]
    index: tuple[str, ...]
    undecided: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """The explanation of a query: what it reads, and where it is computed.

    Attributes:
        execution: "process" or "spark".
        reason: Why it is computed there.
        records: How many records are read.
        memory_mb: The memory for all records, about.
        limit_mb: The memory that a process may have for them.
        seconds: How long reading takes, about; on Spark with its start.
        datasets: The datasets that are looked up.
    """

    execution: str
    reason: str
    records: int
    memory_mb: float
    limit_mb: int
    seconds: float
    datasets: tuple[LookupExplanation, ...]


def explanation_of(
    sizes: Sequence[DatasetSize], indexes: Iterable[IndexPlan], wanted: Execution, *, limit_mb: int, known: bool
) -> Explanation:
    """Return the explanation of a query.

    Args:
        sizes: The sizes of all datasets that it reads.
        indexes: All indexes of the graph.
        wanted: The choice of the request.
        limit_mb: The memory that a process may have for its records.
        known: True: each row sees only what had been ingested by its time.
    """
    plans = {plan.dataset: plan for plan in indexes}
    datasets = tuple(_lookup(size, plans[size.dataset], known=known) for size in sizes)
    needed_mb = sum(size.bytes for size in sizes) / MIB
    fits = int(needed_mb) <= limit_mb
    if wanted is not Execution.AUTO:
        execution, reason = wanted, "the request asks for it"
        if wanted is Execution.PROCESS and not fits:
            reason += "; it will be refused, since its records need more memory than a process may have"
    elif fits:
        execution, reason = Execution.PROCESS, "its records fit into the memory that a process may have"
    else:
        execution, reason = Execution.SPARK, "its records need more memory than a process may have"
    seconds = sum(found.records * (INDEX_SECONDS if found.index else RECORD_SECONDS) for found in datasets)
    return Explanation(
        execution=execution.value,
        reason=reason,
        records=sum(found.records for found in datasets),
        memory_mb=round(needed_mb, 3),
        limit_mb=limit_mb,
        seconds=round(seconds + (SPARK_SECONDS if execution is Execution.SPARK else 0.0), 3),
        datasets=datasets,
    )


def _lookup(size: DatasetSize, plan: IndexPlan, *, known: bool) -> LookupExplanation:
    ways: dict[str, list[str]] = {"columns": [], "index": [], "undecided": []}
    for field in size.fields:
        ways[_way(plan, field, known=known)].append(field)
    archived = [part for part in size.found.parts if part.files]
    return LookupExplanation(
        dataset=size.dataset,
        topic=plan.topic,
        records=size.found.rows,
        archived_records=sum(part.rows for part in archived),
        archived_files=sum(len(part.files) for part in archived),
        memory_mb=round(size.bytes / MIB, 3),
        columns=tuple(ways["columns"]),
        index=tuple(ways["index"]),
        undecided=tuple(ways["undecided"]),
    )


def _way(plan: IndexPlan, field: str, *, known: bool) -> str:
    """Return how a field is computed: in "columns", from an "index", or "undecided" before its records are known."""
    if plan.window is not None or has_max_event_time(plan):
        return "index"
    types = {column.name: column.dtype for column in (*plan.fields, *plan.schema.columns)}
    specs = [spec for spec in plan.aggregates if spec.into == field]
    if plan.kind is IndexKind.VERSIONS or not specs:
        return "undecided" if known and plan.revised else "columns"
    if not is_computable(plan, specs[0]) or (known and specs[0].function in EXTREMES):
        return "index"
    is_decimal = any(isinstance(base_type(types[n]), DecimalType) for n in (field, specs[0].of) if n in types)
    return "undecided" if is_decimal or specs[0].function in EXTREMES or (known and plan.revised) else "columns"
