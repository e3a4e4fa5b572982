"""What running queries have read since their last checkpoint.

In real-time mode Spark tells of a query's progress at its checkpoints, minutes apart. What its tasks have read comes
with the executors' heartbeats, on a cluster too, as a metric of the plan's scan.

Not as the tasks' own counters of input: in local mode heartbeats aren't serialized, and it is by serialization that
those counters get the names by which the driver knows them. There they stay at 0. Metrics of plans go by number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from caraway.spark.java import java_session

# A query reads all of its topics by one scan.
_SCAN = "RealTimeStreamScan"
_ROWS = "number of output rows"
_WHOSE = re.compile(r"runId = (?P<run>[0-9a-f-]+)\nbatch = (?P<batch>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeRows:
    """What a query has read.

    Attributes:
        batch: The number of the batch that it is in; at each checkpoint another one begins.
        rows: Rows of that batch.
    """

    batch: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Scan:
    run: str
    batch: int
    metric: int


class LiveRows:
    """Counts rows by the id of a query's run."""

    def __init__(self, session: SparkSession) -> None:
        """Ask this session."""
        self._session = session
        # Of each batch that runs, by the number of its execution; None if it isn't one of real-time mode.
        self._scans: dict[int, _Scan | None] = {}

    def look(self) -> Mapping[str, RealTimeRows]:
        """Look once."""
        store = java_session(self._session).sharedState().statusStore()
        executions = store.executionsList()
        every = (executions.apply(i) for i in range(executions.size()))
        # A batch is an execution within another one, which has the same plan and no jobs.
        running = {e.executionId(): e for e in every if e.completionTime().isEmpty() and not e.jobs().isEmpty()}
        known = self._scans
        self._scans = {number: known[number] if number in known else _scan(store, e) for number, e in running.items()}
        return {
            scan.run: RealTimeRows(batch=scan.batch, rows=_rows(store, number, scan))
            for number, scan in self._scans.items()
            if scan is not None
        }


def _scan(store: Any, execution: Any) -> _Scan | None:  # noqa: ANN401 (py4j has no types)
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


def _rows(store: Any, execution: int, scan: _Scan) -> int:  # noqa: ANN401 (py4j has no types)
    # Spark has it as text, as its pages show it: "2,700". None before the first heartbeat.
    told = store.executionMetrics(execution).get(scan.metric)
    return 0 if told.isEmpty() else int(told.get().replace(",", ""))
