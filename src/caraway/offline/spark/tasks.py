"""The functions that run in the processes of Spark's tasks."""

import atexit
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

import numpy as np
import polars as pl
import pyarrow as pa

from caraway.archive.columns import columns_of
from caraway.archive.reading import ArchivedRecords
from caraway.config.settings import load_settings
from caraway.objects.folder import ObjectFolder
from caraway.offline.columns import SeriesBatch
from caraway.offline.history.records import index_frame
from caraway.offline.queries.context import opened_context
from caraway.offline.reader import Ints, OfflineReader, SeriesReader
from caraway.offline.spark.pieces import (
    RECORDS,
    ROWS,
    Piece,
    as_batch,
    decoded,
    divided,
    divisions_of,
    encoded,
    of_batches,
)
from caraway.offline.spark.rows import ERROR, NUMBER, TIME, advanced
from caraway.offline.spark.work import RecordsTask, Work
from caraway.plan.model import TopicPlan
from caraway.query.model import Instants, Rows
from caraway.query.rounds import added, read

# The kind of pieces of records that may be revised. They are brought together by identity first.
IDENTITIES = 2
_ROW_NUMBER, _DIVISION = "record row", "record division"

Batches = Iterator[pa.RecordBatch]

_open: dict[str, "Evaluator"] = {}
_closing = ExitStack()
atexit.register(_closing.close)


class DividedTopic:
    """The records of one division of a dataset."""

    def __init__(self, topic: TopicPlan, frames: Sequence[pl.DataFrame], columns: Sequence[str]) -> None:
        """Have the records in some columns of the topic's rows."""
        self._topic = topic
        self._frames = frames
        self._columns = frozenset(columns)

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records in some columns; see `ArchivedTopics.records`."""
        if topic.name != self._topic.name or not self._columns.issuperset(wanted):
            raise AssertionError(f"records of {topic.name} weren't divided with the columns {', '.join(wanted)}")
        columns = columns_of(topic.schema)
        control = [columns.time, columns.op, columns.ingested, columns.partition, columns.offset, columns.number]
        names = [*wanted, *control, columns.id, columns.rev]
        return ArchivedRecords(pl.concat(self._frames).select(list(dict.fromkeys(names))), columns, {})


class StagedReader(SeriesReader):
    """Reads some datasets from the records of a division, and the others from all records."""

    def __init__(self, whole: OfflineReader) -> None:
        """Read all datasets through `whole`, as long as there is no division."""
        self._whole = whole
        self._divided: dict[str, OfflineReader] = {}

    def divide(self, readers: dict[str, OfflineReader]) -> None:
        """Read datasets through their own readers from now on; the former ones are closed."""
        for reader in self._divided.values():
            reader.close()
        self._divided = readers

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read rows; see `OfflineReader.read`."""
        return self._divided.get(dataset, self._whole).read(dataset, keys, at_us, columns)

    def has_series(self, dataset: str, columns: Sequence[str]) -> bool:
        """Return whether columns can be read as series; see `OfflineReader.has_series`."""
        return self._divided.get(dataset, self._whole).has_series(dataset, columns)

    def read_series(
        self, dataset: str, keys: Sequence[pl.Series], at_us: Ints, columns: Sequence[str]
    ) -> list[pl.Series] | None:
        """Read rows as columns; see `OfflineReader.read_series`."""
        return self._divided.get(dataset, self._whole).read_series(dataset, keys, at_us, columns)


class Evaluator:
    """The evaluation of one query in one process."""

    def __init__(self, work: Work) -> None:
        """Open what the evaluation needs, with the settings of this process's environment."""
        settings = load_settings()
        self.work = work
        self.objects = ObjectFolder(settings.objects_url)
        self.context = _closing.enter_context(
            opened_context(settings, work.planned, work.request, work.commit, work.cuts)
        )
        self.topics = {topic.name: topic for topic in work.planned.plan.topics}
        self.reader = StagedReader(_closing.enter_context(self.context.reader()))
        self.plan = self.context.compiled(self.reader)
        self.types = self.plan.types()

    def topic_of(self, dataset: str) -> TopicPlan:
        """Return the topic of a divided dataset."""
        return self.topics[self.work.datasets[dataset].plan.topic]

    def divide(self, records: dict[str, list[pl.DataFrame]], datasets: Sequence[str]) -> None:
        """Read datasets from the records of one division from now on."""
        readers = {}
        for dataset in datasets:
            columns = self.work.datasets[dataset].columns
            topic = self.topic_of(dataset)
            frames = records.get(dataset)
            if not frames:
                nothing = self.context.source.nothing(topic, columns)
                frames = [nothing]
            readers[dataset] = self.context.reader(DividedTopic(topic, frames, columns))
        self.reader.divide(readers)

    def evaluated(self, stage: int, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows after the steps of a stage, with the columns that are needed afterwards."""
        numbers = self.work.stages[stage].steps
        is_last = stage == len(self.work.stages) - 1
        steps = self.plan.plan.steps

        def run(batch: SeriesBatch) -> None:
            for number in numbers:
                self.plan.steps[number](batch)
            if is_last:
                self.plan.check(batch)

        later = [steps[number] for other in self.work.stages[stage + 1 :] for number in other.steps]
        known = {*frame.columns, *(name for number in numbers for name in added(steps[number]))}
        wanted = [*self.plan.output_names, *(name for step in later for name in read(step))]
        names = [name for name in dict.fromkeys(wanted) if name in known]
        return advanced(frame, run, names, self.types)

    def row_divisions(self, stage: int, frame: pl.DataFrame) -> Ints:
        """Return the division of each row in a stage."""
        keys = self.work.stages[stage].keys
        dataset = self.work.datasets[self.work.stages[stage].datasets[0]]
        columns = []
        for part, key in zip(keys, dataset.plan.schema.keys, strict=True):
            columns.append(frame[part.column].alias(key.name))
        found = divisions_of(dataset.plan.schema.keys, columns, self.work.divisions)
        # Rows that failed, or have no key, find nothing anyway.
        spread = frame[NUMBER].to_numpy() % self.work.divisions
        alive = frame[ERROR].is_null().to_numpy()
        for column in columns:
            alive &= column.is_not_null().to_numpy()
        return np.where(alive, found, spread)


def evaluator_of(work: Work) -> Evaluator:
    """Return the evaluator of this process for a query, opened at its first use."""
    if work.name not in _open:
        _closing.close()
        _open.clear()
        _open[work.name] = Evaluator(work)
    return _open[work.name]


def divide_records(work: Work, tasks: Sequence[RecordsTask], batches: Batches) -> Batches:
    """Read parts of records, whose numbers the rows have, and divide them."""
    evaluator = evaluator_of(work)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for piece in _divided_records(evaluator, tasks[number]):
                yield as_batch(piece)


def _divided_records(evaluator: Evaluator, task: RecordsTask) -> Iterator[Piece]:
    dataset = evaluator.work.datasets[task.dataset]
    plan, topic = dataset.plan, evaluator.topic_of(task.dataset)
    rows = evaluator.context.source.read(topic, dataset.found, task.part, dataset.columns)
    rows = rows.with_row_index(_ROW_NUMBER)
    frame = index_frame(plan, ArchivedRecords(rows, columns_of(topic.schema), {}), [_ROW_NUMBER])
    divisions = divisions_of(plan.schema.keys, [frame[key.name] for key in plan.schema.keys], evaluator.work.divisions)
    kept = rows[frame[_ROW_NUMBER]].drop(_ROW_NUMBER)
    if not plan.revised:
        yield from divided(kept, divisions, RECORDS, task.dataset)
        return
    marked = kept.with_columns(pl.Series(_DIVISION, divisions, dtype=pl.Int64))
    identities = kept.select(columns_of(topic.schema).id).hash_rows(0) % evaluator.work.divisions
    yield from divided(marked, identities.cast(pl.Int64).to_numpy(), IDENTITIES, task.dataset)


def gather_revisions(work: Work, batches: Batches) -> Batches:
    """Send each record to the divisions of all revisions of its identity.

    A row of a failed attempt may have another key under the same identity. The division of that key needs the revision
    which replaces the row.
    """
    evaluator = evaluator_of(work)
    for (_, dataset), pieces in groupby(of_batches(batches), key=lambda piece: (piece.division, piece.topic)):
        identity = columns_of(evaluator.topic_of(dataset).schema).id
        frame = pl.concat([piece.frame for piece in pieces])
        everywhere = frame.select(identity, _DIVISION).unique().filter(pl.col(identity).is_not_null())
        unnamed = frame.filter(pl.col(identity).is_null())
        named = frame.drop(_DIVISION).join(everywhere, on=identity, how="inner")
        for some in (unnamed, named.select(unnamed.columns)):
            for piece in divided(some.drop(_DIVISION), some[_DIVISION].to_numpy(), RECORDS, dataset):
                yield as_batch(piece)


def begin_rows(work: Work, names: Sequence[str], batches: Batches) -> Batches:
    """Take the steps of the first stage, which needs no shuffle, for pieces of rows whose numbers the rows have."""
    evaluator = evaluator_of(work)
    evaluator.divide({}, ())
    for batch in batches:
        for number in batch.column(0).to_pylist():
            frame = decoded(evaluator.objects.read(f"{work.folder}/{names[number]}"))
            yield from _ended(evaluator, 0, evaluator.evaluated(0, frame), f"{number}")


def run_stage(work: Work, stage: int, batches: Batches) -> Batches:
    """Take the steps of a stage for divisions: of each there come first the pieces of records, then those of rows."""
    evaluator = evaluator_of(work)
    for division, pieces in groupby(of_batches(batches), key=lambda piece: piece.division):
        records: dict[str, list[pl.DataFrame]] = {}
        rows = 0
        for piece in pieces:
            if piece.kind == RECORDS:
                records.setdefault(piece.topic, []).append(piece.frame)
                continue
            if not rows:
                evaluator.divide(records, work.stages[stage].datasets)
                records = {}
            yield from _ended(evaluator, stage, evaluator.evaluated(stage, piece.frame), f"{division}-{rows}")
            rows += 1
    evaluator.divide({}, ())


def _ended(evaluator: Evaluator, stage: int, frame: pl.DataFrame, name: str) -> Batches:
    """Divide rows for the next stage; after the last one, write them to the object store, and yield their name."""
    work = evaluator.work
    if stage + 1 < len(work.stages):
        for piece in divided(frame, evaluator.row_divisions(stage + 1, frame), ROWS):
            yield as_batch(piece)
        return
    evaluator.objects.write(f"{work.folder}/done-{name}", encoded(frame))
    yield as_batch(Piece(0, ROWS, f"done-{name}", frame.select(TIME).clear()))
