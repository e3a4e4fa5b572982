"""The number of rows that running queries have read since their last checkpoint.

In real-time mode Spark reports a query's progress at its checkpoints only, which are minutes apart. The number of rows
that its tasks have read comes with the executors' heartbeats, as a metric of the plan's scan; on a cluster, too.

The input counters of tasks can't be used in local mode, where they stay at 0: the driver finds these counters by names,
which they get only when a heartbeat is serialized, and in local mode no heartbeat is. It finds metrics of plans by
number.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.java import java_session

# A query reads all of its topics by one scan, whose name in the plan begins with this text.
_SCAN = "RealTimeStreamScan"
_ROWS = "number of output rows"
# Spark's status store raises this error for an execution that it has removed. The store keeps a limited number of
# executions, so it may remove one after the list of executions was read.
_FORGOTTEN = "java.util.NoSuchElementException"
_WHOSE = re.compile(r"runId = (?P<run>[0-9a-f-]+)\nbatch = (?P<batch>\d+)")


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeRows:
    """The number of rows that a query has read in its current batch.

    Attributes:
        batch: The number of the current batch; each checkpoint ends a batch.
        rows: The rows read in that batch.
    """

    batch: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Scan:
    run: str
    batch: int
    metric: int


class LiveRows:
    """Reads the numbers of rows, by the id of a query's run."""

    def __init__(self, session: SparkSession) -> None:
        """Read from the status store of `session`."""
        self._session = session
        # The scan of each running batch, by the number of the batch's SQL execution in Spark; None if the batch isn't
        # in real-time mode.
        self._scans: dict[int, _Scan | None] = {}

    def look(self) -> Mapping[str, RealTimeRows]:
        """Return the rows of each running query, read once."""
        store = java_session(self._session).sharedState().statusStore()
        executions = store.executionsList()
        every = (executions.apply(i) for i in range(executions.size()))
        # Each batch appears as two executions with the same plan, one inside the other. The outer one has no jobs and
        # is left out.
        running = {e.executionId(): e for e in every if e.completionTime().isEmpty() and not e.jobs().isEmpty()}
        known = self._scans
        self._scans = {
            number: known[number] if number in known else _unless_forgotten(partial(_scan, store, e))
            for number, e in running.items()
        }
        found = {}
        for number, scan in self._scans.items():
            if scan is None:
                continue
            rows = _unless_forgotten(partial(_rows, store, number, scan))
            if rows is not None:
                found[scan.run] = RealTimeRows(batch=scan.batch, rows=rows)
        return found


def _unless_forgotten(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if Spark's store has forgotten the execution that it reads."""
    try:
        return read()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != _FORGOTTEN:
            raise
        return None


def _scan(store: Any, execution: Any) -> _Scan | None:
    whose = _WHOSE.search(execution.description())
    if whose is None:
        return None
    nodes = store.planGraph(execution.executionId()).allNodes()
    for node in (nodes.apply(i) for i in range(nodes.size())):
        if node.name().startswith(_SCAN):
            metrics = node.metrics()
            for metric in (metrics.apply(i) for i in range(metrics.size())):
                if metric.name() == _ROWS:
                    return _Scan(whose["run"], int(whose["batch"]), metric.accumulatorId())
    return None


def _rows(store: Any, execution: int, scan: _Scan) -> int:
    # Spark stores the metric as the text that its web pages show, such as "2,700". The metric is missing before the
    # first heartbeat of an executor.
    metric = store.executionMetrics(execution).get(scan.metric)
    return 0 if metric.isEmpty() else int(metric.get().replace(",", ""))
