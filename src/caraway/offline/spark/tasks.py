"""The functions that run in the processes of Spark's tasks."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby

import polars as pl
import pyarrow as pa

from caraway.compute.query.model import Instants, Rows
from caraway.compute.query.rounds import added, read
from caraway.graph.plan.model import Column, TopicPlan
from caraway.offline.columns import SeriesBatch
from caraway.offline.reader import Ints, OfflineReader, SeriesReader
from caraway.offline.spark.dividing import DividedTopic, divided_part, gathered
from caraway.offline.spark.opened import kept, opened
from caraway.offline.spark.pieces import (
    RECORDS,
    ROWS,
    Piece,
    as_batch,
    decoded,
    divided,
    divisions_of,
    encoded,
    in_order,
    of_batches,
)
from caraway.offline.spark.rows import ERROR, NUMBER, TIME, advanced
from caraway.offline.spark.work import RecordsTask, Work

Batches = Iterator[pa.RecordBatch]


class StagedReader(SeriesReader):
    """Reads some datasets from the records of a division, and the others from all records."""

    def __init__(self, whole: OfflineReader) -> None:
        """Read all datasets through `whole`, as long as there is no division."""
        self._whole = whole
        self._divided: dict[str, OfflineReader] = {}
        self._records: Sequence[DividedTopic] = ()

    def divide(self, readers: dict[str, OfflineReader], records: Sequence[DividedTopic]) -> None:
        """Read datasets through their own readers of records from now on; the former ones are closed."""
        for reader in self._divided.values():
            reader.close()
        for some in self._records:
            some.close()
        self._divided, self._records = readers, records

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

    def __init__(self, work: Work, closing: ExitStack) -> None:
        """Open what the evaluation needs, until `closing` closes it."""
        self.work = work
        task = closing.enter_context(opened(work.planned, work.request, work.commit, work.cuts))
        self.objects, self.context = task.objects, task.context
        self.topics = {topic.name: topic for topic in work.planned.plan.topics}
        self.reader = StagedReader(closing.enter_context(self.context.reader()))
        self.plan = self.context.compiled(self.reader)
        self.types = self.plan.types()

    def topic_of(self, dataset: str) -> TopicPlan:
        """Return the topic of a divided dataset."""
        return self.topics[self.work.datasets[dataset].plan.topic]

    def no_records(self, dataset: str) -> DividedTopic:
        """Return the records of a dataset in a division, none yet."""
        columns, topic = self.work.datasets[dataset].columns, self.topic_of(dataset)
        return DividedTopic(topic, columns, self.context.source.nothing(topic, columns), limit=self.work.records_bytes)

    def divide(self, records: dict[str, DividedTopic], datasets: Sequence[str]) -> None:
        """Read datasets from the records of one division from now on."""
        found = {dataset: records.get(dataset) or self.no_records(dataset) for dataset in datasets}
        readers = {dataset: self.context.reader(some, some.memory()) for dataset, some in found.items()}
        self.reader.divide(readers, list(found.values()))

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
        keys, columns = self._keys(stage, frame)
        alive = frame[ERROR].is_null()
        for column in columns:
            alive &= column.is_not_null()
        # Rows that failed or have no key find no record in any division, so they are spread over the divisions by their
        # numbers.
        found = frame[NUMBER].to_numpy() % self.work.divisions
        asked = [column.filter(alive) for column in columns]
        found[alive.to_numpy()] = divisions_of(keys, asked, self.work.divisions)
        return found

    def by_key(self, stage: int, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a division in order of key and time, as its records are sorted."""
        keys, columns = self._keys(stage, frame)
        return frame[in_order(keys, columns, frame[TIME])]

    def _keys(self, stage: int, frame: pl.DataFrame) -> tuple[tuple[Column, ...], list[pl.Series]]:
        parts = self.work.stages[stage].keys
        keys = self.work.datasets[self.work.stages[stage].datasets[0]].plan.schema.keys
        return keys, [frame[part.column].alias(key.name) for part, key in zip(parts, keys, strict=True)]


def evaluator_of(work: Work) -> Evaluator:
    """Return the evaluator of this process for a query, opened at its first use."""
    return kept(work.name, Evaluator, partial(Evaluator, work))


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
    """Compute the steps of the first stage, which needs no shuffle, for the pieces whose numbers `batches` have."""
    evaluator = evaluator_of(work)
    evaluator.divide({}, ())
    for batch in batches:
        for number in batch.column(0).to_pylist():
            frame = decoded(evaluator.objects.read(f"{work.folder}/{names[number]}"))
            yield from _ended(evaluator, 0, evaluator.evaluated(0, frame), f"{number}")


def run_stage(work: Work, stage: int, batches: Batches) -> Batches:
    """Compute the steps of a stage for divisions. A division's pieces of records come before its pieces of rows."""
    evaluator = evaluator_of(work)
    for division, pieces in groupby(of_batches(batches), key=lambda piece: piece.division):
        records: dict[str, DividedTopic] = {}
        rows: list[pl.DataFrame] = []
        number = 0
        has_begun = on_disk = False
        for piece in pieces:
            if piece.kind == RECORDS:
                if piece.topic not in records:
                    records[piece.topic] = evaluator.no_records(piece.topic)
                records[piece.topic].add(piece.frame)
                continue
            if not has_begun:
                on_disk = any(some.on_disk for some in records.values())
                evaluator.divide(records, work.stages[stage].datasets)
                has_begun = True
            if on_disk:
                rows.append(piece.frame)
                continue
            yield from _ended(evaluator, stage, evaluator.evaluated(stage, piece.frame), f"{division}-{number}")
            number += 1
        if rows:
            # Rows that are close together on the disk are evaluated together, so that each block of records is read for
            # few pieces of rows. All rows of the division are in memory, but not their features.
            size = max(frame.height for frame in rows)
            for frame in evaluator.by_key(stage, pl.concat(rows)).iter_slices(size):
                yield from _ended(evaluator, stage, evaluator.evaluated(stage, frame), f"{division}-{number}")
                number += 1
        if not has_begun:
            for some in records.values():
                some.close()
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
