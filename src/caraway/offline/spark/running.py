"""The evaluation of an offline query on Spark, some rows at a time.

The rows of a part and the records of large datasets are divided by the keys of lookups. Each division is evaluated by
the code that evaluates queries in process, so that the results are the same to the bit. Small datasets are read as a
whole by each task, as a join with a broadcast does.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from caraway.dataplane.index.storage.intervals import is_divisible
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import InvalidInputError
from caraway.offline.engine import OfflinePlan
from caraway.offline.queries.context import QueryContext
from caraway.offline.queries.evaluation import Evaluated, array_of, times_of
from caraway.offline.queries.inputs import InputPart
from caraway.offline.sizes import DatasetSize
from caraway.offline.spark.dividing import RECORDS_BYTES
from caraway.offline.spark.jobs import by_division, numbers, waited
from caraway.offline.spark.pieces import PIECE_ROWS, SCHEMA, decoded, encoded
from caraway.offline.spark.rows import ERROR, NUMBER, TIME, empty, frame_of
from caraway.offline.spark.stages import stages_of
from caraway.offline.spark.tasks import begin_rows, divide_records, gather_revisions, run_stage
from caraway.offline.spark.work import DividedDataset, RecordsTask, Work, columns_read, ordered_keys

# The records of a division take at most about this much memory. A larger dataset is divided into more divisions.
DIVISION_BYTES = 128 << 20
# The number of rows of a piece that calls users' functions; others have `PIECE_ROWS`. Such pieces are smaller, since a
# failing row makes the other rows of its piece be computed again.
PIECE_ROWS_OF_FUNCTIONS = 2_500
# A failing row is evaluated alone in the end, so its error says "row 0", in whose place its number in the query comes.
_ROW = re.compile(r"\brow 0\b")


@dataclass(frozen=True, slots=True)
class SparkEvaluation:
    """The evaluation of a query's parts.

    Attributes:
        spark: The session.
        objects: The object store that all tasks see.
        plan: The plan of the query.
        work: The work of the query.
    """

    spark: SparkSession
    objects: ObjectFolder
    plan: OfflinePlan
    work: Work

    def evaluate(
        self, part: InputPart, first: int, interrupted: Callable[[], bool] = lambda: False
    ) -> Evaluated | None:
        """Compute the outputs of the plan for rows; see `caraway.offline.queries.evaluation.evaluate`.

        Raises:
            UnavailableError: Something doesn't answer.
            CarawayError: A task failed.
        """
        types = self.plan.types()
        times, errors = times_of(part, first)
        rows = _input_frame(self.plan, part, first, times, errors)
        try:
            names = self._write(rows)
            done = waited(self.spark, partial(self._run, names), interrupted)
            if done is None:
                return None
            pieces = [decoded(self.objects.read(f"{self.work.folder}/{name}")) for name in done]
        finally:
            self.objects.remove_folder(self.work.folder)
        outputs = self.plan.plan.outputs
        nothing = empty({column.name: types[column.name] for column in outputs})
        found = pl.concat([nothing, *(piece.select(nothing.columns) for piece in pieces)]).sort(NUMBER)
        if found.height != part.rows:
            raise AssertionError(f"{part.rows} rows were given to Spark, and {found.height} came back")
        columns = {column.name: array_of(found[column.name], types[column.name]) for column in outputs}
        return Evaluated(columns, times, found[ERROR].to_list())

    def _write(self, rows: pl.DataFrame) -> list[str]:
        """Write rows to the object store in pieces, and return the names of these."""
        size = PIECE_ROWS_OF_FUNCTIONS if self.plan.runs_user_code else PIECE_ROWS
        names = []
        for number, piece in enumerate(rows.iter_slices(size)):
            names.append(f"rows-{number}")
            self.objects.write(f"{self.work.folder}/{names[-1]}", encoded(piece))
        return names

    def _run(self, names: Sequence[str]) -> list[str]:
        """Run all stages; return the names of the objects with the results."""
        work = self.work
        rows = numbers(self.spark, len(names)).mapInArrow(partial(begin_rows, work, names), SCHEMA)
        for number in range(1, len(work.stages)):
            for records in self._records(number):
                rows = rows.unionAll(records)
            rows = by_division(rows, work.divisions, "kind").mapInArrow(partial(run_stage, work, number), SCHEMA)
        return [row["topic"] for row in rows.select("topic").collect()]

    def _records(self, stage: int) -> list[DataFrame]:
        """Return the records of the datasets that are divided in a stage."""
        plain: list[RecordsTask] = []
        revised: list[RecordsTask] = []
        for name in self.work.stages[stage].datasets:
            dataset = self.work.datasets[name]
            (revised if dataset.plan.revised else plain).extend(RecordsTask(name, part) for part in dataset.found.parts)
        found = []
        if plain:
            tasks = numbers(self.spark, len(plain))
            found.append(tasks.mapInArrow(partial(divide_records, self.work, plain), SCHEMA))
        if revised:
            tasks = numbers(self.spark, len(revised))
            records = tasks.mapInArrow(partial(divide_records, self.work, revised), SCHEMA)
            together = by_division(records, self.work.divisions, "topic")
            found.append(together.mapInArrow(partial(gather_revisions, self.work), SCHEMA))
        return found


def work_of(
    context: QueryContext,
    plan: OfflinePlan,
    sizes: Sequence[DatasetSize],
    *,
    name: str,
    folder: str,
    processors: int,
    whole_bytes: int,
    division_bytes: int = DIVISION_BYTES,
    records_bytes: int = RECORDS_BYTES,
) -> Work:
    """Return the work of a query.

    Args:
        context: The query.
        plan: Its plan.
        sizes: The sizes of all datasets that it reads.
        name: A name that no other run has.
        folder: A folder of the object store for pieces of rows, which is removed afterwards.
        processors: The number of tasks that run at a time.
        whole_bytes: Datasets that are smaller are read as a whole by each task.
        division_bytes: The memory for the records of a division, about.
        records_bytes: The records of a dataset and a division that are held in memory, not on the disk.
    """
    plans = {index.dataset: index for index in context.planned.plan.indexes}
    large = [size for size in sizes if size.bytes >= whole_bytes and is_divisible(plans[size.dataset])]
    datasets = {
        size.dataset: DividedDataset(
            plan=plans[size.dataset],
            columns=tuple(columns_read(plans[size.dataset], list(size.fields), known=context.request.as_known)),
            found=size.found,
        )
        for size in large
    }
    return Work(
        name=name,
        folder=folder,
        request=context.request,
        commit=context.commit,
        planned=context.planned,
        cuts=context.cuts,
        datasets=datasets,
        stages=stages_of(plan.plan.steps, datasets.keys(), lambda step: ordered_keys(plans[step.dataset], step)),
        divisions=max(2 * processors, ceil(max((size.bytes for size in large), default=0) / division_bytes)),
        records_bytes=records_bytes,
    )


def _input_frame(
    plan: OfflinePlan, part: InputPart, first: int, times: Sequence[int | None], errors: Sequence[str | None]
) -> pl.DataFrame:
    """Return the inputs of rows, cast to their types, with the errors of those that can't be cast."""
    names = [column.name for column in plan.plan.inputs]
    types = {name: dtype for name, dtype in plan.types().items() if name in names}
    nothing = empty(types)
    pieces = [nothing]
    left = [list(range(part.rows))]
    while left:
        some = left.pop()
        # A group with a row whose time can't be read isn't cast, but halved until that row is alone, as if the row had
        # failed.
        told = next((error for row in some if (error := errors[row]) is not None), None)
        batch = None
        if told is None:
            try:
                batch = plan.batch({name: [values[row] for row in some] for name, values in part.inputs.items()}, 0)
            except InvalidInputError as error:
                told = _ROW.sub(f"row {first + some[0]}", str(error), count=1)
        if batch is not None:
            head = [
                pl.Series(NUMBER, [first + row for row in some], dtype=pl.Int64),
                pl.Series(TIME, [times[row] for row in some], dtype=pl.Int64),
                pl.Series(ERROR, [None] * len(some), dtype=pl.String),
            ]
            pieces.append(pl.DataFrame([*head, *frame_of(batch, names, types)]))
        elif len(some) > 1:
            middle = len(some) // 2
            left += [some[middle:], some[:middle]]
        else:
            lost = {NUMBER: [first + some[0]], TIME: [times[some[0]] or 0], ERROR: [told]}
            pieces.append(pl.DataFrame(lost | {name: [None] for name in names}, schema=nothing.schema))
    return pl.concat(pieces)
