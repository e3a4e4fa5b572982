"""Estimates of the memory for the records that a query reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from caraway.compute.query.model import LookupStep, PythonStep, Step
from caraway.dataplane.archive.store.reading import ArchivedTopics, TopicParts
from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.offline.history.records import columns_needed

# The messages of a topic that aren't archived are divided into parts of at most this many; a task of Spark reads one
# part.
MESSAGES = 100_000
# Bytes of a record beside its values: its position, times and operation, and its place in the order by key and time.
RECORD_BYTES = 64
_TEXT_BYTES, _NESTED_BYTES = 32, 96
_WIDTHS: Mapping[type, int] = {
    IntType: 8,
    FloatType: 8,
    BoolType: 1,
    DateType: 4,
    DatetimeType: 8,
    StringType: _TEXT_BYTES,
    BytesType: _TEXT_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSize:
    """The records of a dataset that a query reads.

    Attributes:
        dataset: The dataset.
        fields: The fields that are looked up.
        found: The places of the records.
        bytes: An estimate of their memory.
    """

    dataset: str
    fields: tuple[str, ...]
    found: TopicParts
    bytes: int


def sizes_of(
    steps: Sequence[Step],
    indexes: Iterable[IndexPlan],
    topics: Iterable[TopicPlan],
    source: ArchivedTopics,
    *,
    piece: int,
) -> list[DatasetSize]:
    """Return the sizes of all datasets that the steps of a query read.

    Args:
        steps: The steps.
        indexes: All indexes of the graph.
        topics: All topics.
        source: The records of topics.
        piece: The most messages of a part of a topic that isn't archived.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    plans = {plan.dataset: plan for plan in indexes}
    by_name = {topic.name: topic for topic in topics}
    fields: dict[str, set[str]] = {}
    for step in steps:
        if isinstance(step, LookupStep):
            fields.setdefault(step.dataset, set()).update(feature.field for feature in step.features)
        elif isinstance(step, PythonStep):
            for dataset in step.datasets:
                if dataset in plans:
                    fields.setdefault(dataset, set()).update(column.name for column in plans[dataset].fields)
    found = []
    for dataset, names in sorted(fields.items()):
        plan = plans[dataset]
        topic = by_name[plan.topic]
        parts = source.parts(topic, piece)
        needed = set(columns_needed(plan, [column.name for column in plan.schema.columns]))
        width = RECORD_BYTES + sum(_width(c.dtype) for c in topic.schema.columns if c.name in needed)
        found.append(DatasetSize(dataset=dataset, fields=tuple(sorted(names)), found=parts, bytes=parts.rows * width))
    return found


def _width(dtype: DataType) -> int:
    return _WIDTHS.get(type(base_type(dtype)), _NESTED_BYTES)
