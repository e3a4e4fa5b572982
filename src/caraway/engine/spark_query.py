"""A running query: how it is, and how far."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from caraway.engine.damage import is_damage, put_aside
from caraway.engine.jobs import brief
from caraway.engine.lag import Lag, totals
from caraway.engine.observer import Observer
from caraway.engine.phases import Phase, is_left_behind
from caraway.plan.model import JobPlan
from caraway.spark.checkpoints import next_batch, position_of
from caraway.spark.java import causes_of
from caraway.spark.letters import LetterCount
from caraway.topics.positions import Offsets

# Asking a query costs some milliseconds of the driver, and each answer is a write to the registry.
LOOK_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class SparkQuery:
    """A query of one phase of a job.

    Attributes:
        query: Spark's.
        plan: The job.
        phase: What it is about.
        checkpoint: The folder of its checkpoint.
        interval_ms: How long a batch lasts by itself; 0 if it ends with its input.
        letters: Counts the job's dead letters.
        observer: Knows how far the topics reach.
        clock: Counts seconds.
    """

    query: StreamingQuery
    plan: JobPlan
    phase: Phase
    checkpoint: Path
    interval_ms: int
    letters: LetterCount
    observer: Observer
    clock: Callable[[], float]
    _looked_at: float = -LOOK_SECONDS
    _done: int | None = None
    _lag: Lag | None = None
    _progress: Mapping[str, object] = field(default_factory=dict)

    def failure(self) -> str | None:
        """Return why it ended, None while it runs, or if it has read all that it was to read."""
        if self.query.isActive:
            return None
        error = self.query.exception()
        if error is not None:
            causes = causes_of(error)
            told = brief(error, because=causes[-1] if causes else "")
            # Spark's own text, since the sign may stand deep in it.
            return put_aside(self.checkpoint, told) if is_damage(str(error), causes) else told
        return None if self.phase is Phase.BACKFILL else "the query has ended without an error"

    def is_over(self) -> bool:
        """Return whether the backlog is done, or whether there is so much of it again that it needs another phase."""
        if self.phase is Phase.BACKFILL:
            return not self.query.isActive
        return self._lag is not None and is_left_behind(self.plan.mode, self.phase, self._lag.records)

    def progress(self) -> Mapping[str, object]:
        """Return rows, lag, state and times, which are looked at anew every few seconds."""
        now = self.clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._progress = self._look(now)
            self._looked_at = now
        return self._progress

    def stop(self) -> None:
        """End it."""
        self.query.stop()

    def _look(self, now: float) -> Mapping[str, object]:
        last = self.query.lastProgress
        told = {} if last is None else json.loads(last.json)
        positions, batch = self._positions(told)
        done = self._records_done(positions, batch)
        if self._done is None:
            rate = float(told.get("processedRowsPerSecond") or 0.0)
        else:
            rate = max(0, done - self._done) / (now - self._looked_at)
        self._done = done
        self._lag = self.observer.lag([topic.name for topic in self.plan.inputs], done)
        lag = {} if self._lag is None else {"lag_records": self._lag.records, "lag_seconds": self._lag.seconds}
        return {
            "phase": self.phase,
            "rows_per_second": round(rate, 1),
            "dead_letters": self.letters.value,
            "positions": positions,
            **lag,
            **(checkpoint_figures(told, self.interval_ms) if told else {}),
        }

    def _positions(self, told: Mapping[str, Any]) -> tuple[Offsets, int]:
        """Return up to which offsets all is done and committed, and the number of the batch after that."""
        ends = [source["endOffset"] for source in told.get("sources", ()) if source["endOffset"]]
        if ends:
            return ends[0], told["batchId"] + 1
        return position_of(self.checkpoint).offsets, next_batch(self.checkpoint)

    def _records_done(self, offsets: Offsets, batch: int) -> int:
        """Count the records before the position of the query, those since its last checkpoint included."""
        done = sum(totals(offsets).values()) + self.observer.rows(str(self.query.runId), batch)
        # At a checkpoint the rows of the old batch are in its offsets, and those of the new one aren't known yet.
        return max(done, self._done or 0)


def checkpoint_figures(told: Mapping[str, Any], interval_ms: int) -> Mapping[str, object]:
    """Return what a query reports of itself at a checkpoint.

    Args:
        told: Spark's progress.
        interval_ms: How long a batch lasts by itself; what is beyond that is the pause of the checkpoint.
    """
    times, operators = told["durationMs"], told["stateOperators"]
    pause = times.get("triggerExecution", 0) - interval_ms
    saved = (
        times.get("walCommit", 0)
        + times.get("commitOffsets", 0)
        + max((o["commitTimeMs"] for o in operators), default=0)
    )
    return {
        "at": told["timestamp"],
        "batch": told["batchId"],
        "rows": told["numInputRows"],
        "checkpoint_ms": max(0, pause) if interval_ms else saved,
        "state_rows": sum(operator["numRowsTotal"] for operator in operators),
        "state_bytes": sum(_bytes(operator) for operator in operators),
    }


def _bytes(operator: Mapping[str, Any]) -> int:
    """Return what an operator keeps, on disk and in memory."""
    on_disk: int = operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    in_memory: int = operator["memoryUsedBytes"]
    return on_disk + in_memory
