"""The functions that run in the processes of Spark's tasks."""

import atexit
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

import polars as pl
import pyarrow as pa

from caraway.config.settings import load_settings
from caraway.objects.folder import ObjectFolder
from caraway.offline.columns import SeriesBatch
from caraway.offline.queries.context import opened_context
from caraway.offline.reader import Ints, OfflineReader, SeriesReader
from caraway.offline.spark.dividing import DividedTopic, divided_part, gathered
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

Batches = Iterator[pa.RecordBatch]

_open: dict[str, "Evaluator"] = {}
_closing = ExitStack()
atexit.register(_closing.close)


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
        columns = [frame[part.column].alias(key.name) for part, key in zip(keys, dataset.plan.schema.keys, strict=True)]
        alive = frame[ERROR].is_null()
        for column in columns:
            alive &= column.is_not_null()
        # Rows that failed, or have no key, find nothing anyway.
        found = frame[NUMBER].to_numpy() % self.work.divisions
        asked = [column.filter(alive) for column in columns]
        found[alive.to_numpy()] = divisions_of(dataset.plan.schema.keys, asked, self.work.divisions)
        return found


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
            task = tasks[number]
            dataset, topic = work.datasets[task.dataset], evaluator.topic_of(task.dataset)
            source = evaluator.context.source
            for piece in divided_part(source, dataset, topic, task.part, work.divisions):
                yield as_batch(piece)


def gather_revisions(work: Work, batches: Batches) -> Batches:
    """Send each record to the divisions of all revisions of its identity; see `gathered`."""
    evaluator = evaluator_of(work)
    for (_, dataset), pieces in groupby(of_batches(batches), key=lambda piece: (piece.division, piece.topic)):
        for piece in gathered(evaluator.topic_of(dataset), dataset, pieces):
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
