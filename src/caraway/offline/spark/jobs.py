"""Jobs of Spark over pieces of columns: tasks by number, divisions, and a wait that can be interrupted."""

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import caraway.errors
from caraway.errors import CarawayError

LOOK_SECONDS = 0.5
_RAISED = re.compile(r"^caraway\.errors\.(\w+): (.*)", re.MULTILINE)

T = TypeVar("T")


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers of tasks, each in a partition of its own."""
    return spark.range(0, count, 1, count)


def by_division(pieces: DataFrame, divisions: int, order: str) -> DataFrame:
    """Return pieces with one partition for each division, in order."""
    return pieces.repartitionById(divisions, pieces["division"]).sortWithinPartitions("division", order)


def waited(spark: SparkSession, job: Callable[[], T], interrupted: Callable[[], bool]) -> T | None:
    """Return the result of a job of Spark; None if it was interrupted.

    Raises the error of Caraway that a task raised.
    """
    with ThreadPoolExecutor(1) as threads:
        running: Future[T] = threads.submit(job)
        cancelled = False
        while not wait([running], LOOK_SECONDS).done:
            cancelled = cancelled or interrupted()
            if cancelled:
                # Spark cancels the jobs that run at this moment. The action's job may begin later, and another one of
                # the action may follow it, so the cancellation is repeated until the action has ended.
                spark.sparkContext.cancelAllJobs()
        if cancelled:
            return None
        try:
            return running.result()
        except PySparkException as error:
            raise _translated(error) from error


def _translated(error: PySparkException) -> Exception:
    """Return the error of Caraway that a task raised, as far as Spark's error tells; otherwise Spark's own."""
    for name, told in _RAISED.findall(str(error)):
        kind = getattr(caraway.errors, name, None)
        if isinstance(kind, type) and issubclass(kind, CarawayError):
            return kind(told)
    return error
