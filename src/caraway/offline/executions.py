"""The choice of where an offline query is computed: in its own process, or on Spark."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import structlog

from caraway.compute.query.executor import CompiledPlan
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import InvalidInputError
from caraway.offline.coverage import Coverage, coverage_of
from caraway.offline.explaining import NAME, explanation_of
from caraway.offline.queries.context import QueryContext
from caraway.offline.queries.evaluation import Evaluated, evaluate
from caraway.offline.queries.inputs import InputPart
from caraway.offline.queries.model import Execution, folder_of
from caraway.offline.queries.running import PART_ROWS_ON_SPARK, Evaluate
from caraway.offline.sizes import MESSAGES, DatasetSize, sizes_of
from caraway.offline.stopwatch import SPARK
from caraway.process.settings.settings import Settings

LOG = structlog.get_logger(__name__)

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of a query.

    Attributes:
        plan: The plan of the query.
        evaluate: Computes the outputs for a part of the rows.
        coverage: How far back the records go that it reads.
        part_rows: The rows of a part; None for the usual number.
    """

    plan: CompiledPlan
    evaluate: Evaluate
    coverage: Sequence[Coverage] = ()
    part_rows: int | None = None


@contextmanager
def evaluation_of(
    settings: Settings, context: QueryContext, objects: ObjectFolder, query_id: str
) -> Iterator[Evaluation]:
    """Yield the evaluation of a query.

    Raises:
        InvalidInputError: The query is to be computed in its process, but needs too much memory.
        UnavailableError: The broker or the object store doesn't answer.
    """
    plans = context.planned.plan
    with context.reader() as reader:
        plan = context.plan(reader)
        sizes = sizes_of(plan.plan.steps, plans.indexes, plans.topics, context.source, piece=MESSAGES)
        request = context.request
        explanation = explanation_of(
            sizes, plans.indexes, request.execution, limit_mb=settings.offline.memory_mb, known=request.as_known
        )
        objects.write(f"{folder_of(query_id)}/{NAME}", msgspec.json.encode(explanation))
        coverage = coverage_of(sizes, plans.indexes, plans.topics, context.source)
        needed_mb = sum(size.bytes for size in sizes) // MIB
        execution = chosen(context.request.execution, needed_mb, settings.offline.memory_mb)
        LOG.info(
            "an offline query reads records",
            query=query_id,
            execution=execution.value,
            datasets={size.dataset: size.found.rows for size in sizes},
            needed_mb=needed_mb,
        )
        if execution is Execution.PROCESS:
            plan = context.compiled(reader)
            yield Evaluation(plan, partial(evaluate, plan), coverage)
            return
    with _on_spark(settings, context, objects, query_id, sizes) as evaluation:
        yield replace(evaluation, coverage=coverage)


def chosen(wanted: Execution, needed_mb: int, memory_mb: int) -> Execution:
    """Return where a query is computed, given the memory for its records and that for one process.

    Raises `InvalidInputError` if the process is wanted but has too little memory.
    """
    fits = needed_mb <= memory_mb
    if wanted is Execution.PROCESS and not fits:
        raise InvalidInputError(
            f"the records of this query need about {needed_mb:,} MiB, and its process may have {memory_mb:,} "
            'for them (the setting offline.memory_mb); ask it with execution="spark", or for fewer features'
        )
    if wanted is Execution.AUTO:
        return Execution.PROCESS if fits else Execution.SPARK
    return wanted


@contextmanager
def _on_spark(
    settings: Settings, context: QueryContext, objects: ObjectFolder, query_id: str, sizes: list[DatasetSize]
) -> Iterator[Evaluation]:
    # PySpark takes a second to import, which a query that is computed in this process needn't wait for.
    from caraway.offline.spark.running import SparkEvaluation, work_of  # noqa: PLC0415
    from caraway.offline.spark.session import scratch_session  # noqa: PLC0415

    with context.reader() as reader:
        plan = context.plan(reader)
        with scratch_session(settings) as spark:
            processors = spark.sparkContext.defaultParallelism
            work = work_of(
                context,
                plan,
                sizes,
                name=f"{query_id}/{os.getpid()}",
                folder=f"{folder_of(query_id)}/work",
                processors=processors,
                whole_bytes=settings.offline.spark_broadcast_mb * MIB,
                records_bytes=int(settings.offline.spark_records_mb * MIB),
            )
            made = SparkEvaluation(spark, objects, plan, work)

            def timed(part: InputPart, first: int, interrupted: Callable[[], bool]) -> Evaluated | None:
                with context.watch.step(SPARK):
                    return made.evaluate(part, first, interrupted)

            yield Evaluation(plan, timed, part_rows=PART_ROWS_ON_SPARK)
