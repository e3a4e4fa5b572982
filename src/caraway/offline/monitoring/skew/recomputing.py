"""The features of served rows, computed again by the graph of the commit that served them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import orjson

from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import CompilePython
from caraway.compute.query.model import LookupStep, PythonStep
from caraway.dataplane.archive.store.reading import ArchivedTopics
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import ExtractorError, InvalidInputError, UnknownEntityError
from caraway.offline.engine import OfflineEngine, OfflinePlan
from caraway.offline.history.records import TopicRecords
from caraway.offline.monitoring.skew.history import LaterRecords
from caraway.offline.monitoring.skew.sampling import ServedRow
from caraway.offline.narrowing import KeyRecords, NarrowReader
from caraway.offline.reader import OfflineReader, SeriesReader
from caraway.offline.sizes import sizes_of
from caraway.state.findings import Finding
from caraway.state.plans import Planned

MIB = 1 << 20
# To estimate the size of a topic, its messages that aren't archived are divided into parts of at most this many.
MESSAGES = 100_000


@dataclass(frozen=True, slots=True)
class Question:
    """The names of the inputs and outputs of a query."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a row that can't be computed again."""

    error: str


# The values of a row's outputs as JSON texts, by name; or why there are none.
Recomputed = Mapping[str, str] | Failure


def json_text(value: object) -> str:
    """Return a value as the log of served features has it; equal texts mean equal bits."""
    return orjson.dumps(value, default=str).decode()


class CommitQueries:
    """The queries of one commit over its history."""

    def __init__(
        self,
        commit: str,
        planned: Planned,
        source: ArchivedTopics,
        *,
        topics: frozenset[str],
        erased: ErasedKeys,
        compile_python: CompilePython,
        memory_mb: int,
    ) -> None:
        """Compute the features of a commit.

        Args:
            commit: The commit.
            planned: Its graph and plan.
            source: The records of its topics.
            topics: The topics that exist.
            erased: The keys without rows.
            compile_python: Decides where users' functions run.
            memory_mb: The most memory in MiB for the records of a dataset.
        """
        self.catalog = Catalog(commit, planned.graph)
        self._source = source
        self._records = KeyRecords(source, planned.plan.indexes)
        self._plan = planned.plan
        self._topics = topics
        self._erased = erased
        self._compile_python = compile_python
        self._memory_mb = memory_mb
        self._unchecked: dict[str, Finding | None] = {}

    def reader(self) -> NarrowReader:
        """Return a reader of all datasets, which sees all that is known now."""
        return NarrowReader(self._records, partial(self._made, known=False))

    def reader_then(self, later_us: int) -> NarrowReader:
        """Return a reader of what had been ingested `later_us` before the time of each read."""
        return NarrowReader(self._records, lambda source: self._made(LaterRecords(source, later_us), known=True))

    def _made(self, source: TopicRecords, *, known: bool) -> OfflineReader:
        return OfflineReader(source, self._plan.indexes, self._plan.topics, erased=self._erased, known=known)

    def compiled(self, question: Question, reader: SeriesReader) -> OfflinePlan:
        """Return the plan of a query, whose lookups read through `reader`.

        Raises:
            UnknownEntityError: A feature doesn't exist.
            InvalidInputError: A feature can't be computed from the inputs.
        """
        return OfflineEngine(self.catalog, reader, self._compile_python).plan(question.inputs, question.outputs)

    def unchecked(self, question: Question, reader: SeriesReader) -> dict[str, Finding]:
        """Return the outputs that can't be computed again, each with the reason.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        found = {}
        for name in question.outputs:
            reason = self._why_not(Question(question.inputs, (name,)), reader)
            if reason is not None:
                found[name] = reason
        return found

    def _why_not(self, question: Question, reader: SeriesReader) -> Finding | None:
        try:
            plan = self.compiled(question, reader)
        except (UnknownEntityError, InvalidInputError):
            return Finding.FAILED
        read: dict[str, None] = {}
        for step in plan.plan.steps:
            match step:
                case LookupStep():
                    read[step.dataset] = None
                case PythonStep():
                    read.update(dict.fromkeys(step.datasets))
        reasons = [reason for name in read if (reason := self._why_unread(name, plan)) is not None]
        return reasons[0] if reasons else None

    def _why_unread(self, dataset: str, plan: OfflinePlan) -> Finding | None:
        """Return why the history of a dataset can't be read; None if it can."""
        if dataset not in self._unchecked:
            self._unchecked[dataset] = self._looked_up(dataset, plan)
        return self._unchecked[dataset]

    def _looked_up(self, dataset: str, plan: OfflinePlan) -> Finding | None:
        indexed = self.catalog.dataset(dataset).index
        if indexed is None or not indexed.offline:
            return Finding.NO_OFFLINE_INDEX
        indexes = [index for index in self._plan.indexes if index.dataset == dataset]
        if any(index.topic not in self._topics for index in indexes):
            return Finding.CHANGED_DEFINITION
        steps = [step for step in plan.plan.steps if _reads(step, dataset)]
        topics = [topic for topic in self._plan.topics if topic.name in self._topics]
        sizes = sizes_of(steps, indexes, topics, self._source, piece=MESSAGES)
        if sum(size.bytes for size in sizes) > self._memory_mb * MIB:
            return Finding.TOO_MUCH_HISTORY
        return None


def recompute(plan: OfflinePlan, rows: Sequence[ServedRow]) -> list[Recomputed]:
    """Compute the outputs of a plan for rows, each as of its time; a row that fails doesn't keep others from theirs."""
    if not rows:
        return []
    names = [column.name for column in plan.plan.inputs]
    try:
        inputs = {name: [row.inputs[name] for row in rows] for name in names}
        answer = plan.run(inputs, [row.at_us for row in rows])
    except (InvalidInputError, ExtractorError) as error:
        if len(rows) == 1:
            return [Failure(str(error))]
        middle = len(rows) // 2
        return [*recompute(plan, rows[:middle]), *recompute(plan, rows[middle:])]
    return [{name: json_text(column[number]) for name, column in answer.items()} for number in range(len(rows))]


def _reads(step: object, dataset: str) -> bool:
    match step:
        case LookupStep():
            return step.dataset == dataset
        case PythonStep():
            return dataset in step.datasets
        case _:
            return False
