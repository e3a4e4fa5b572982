"""A running Spark query of a job: its state and its progress."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from caraway.dataplane.streams.engine.damage import is_damage, put_aside
from caraway.dataplane.streams.engine.jobs import brief
from caraway.dataplane.streams.engine.lag import Lag, Observer, totals
from caraway.dataplane.streams.engine.losses import note, reached
from caraway.dataplane.streams.engine.phases import Phase, is_left_behind
from caraway.dataplane.streams.engine.slots import SlotBook
from caraway.dataplane.streams.spark.checkpoints import next_batch, position_of
from caraway.dataplane.streams.spark.java import causes_of
from caraway.dataplane.streams.spark.letters import LetterCount
from caraway.dataplane.topics.positions import Offsets
from caraway.graph.plan.model import JobPlan

# The interval between two reads of a query's progress. A read takes milliseconds of the driver's time, and each new
# progress is written to the registry.
LOOK_SECONDS = 5.0
# Seconds between two checks whether a live query still runs. A check is a call into the JVM, and with hundreds of jobs
# the calls add up.
ASK_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class SparkQuery:
    """A query of one phase of a job.

    Attributes:
        query: Spark's query.
        plan: The job.
        phase: The phase of the job that the query runs.
        checkpoint: The folder of its checkpoint.
        interval_ms: How long a batch lasts by design, in milliseconds; 0 if it ends with its input.
        letters: Counts the job's dead letters.
        observer: Knows the ends of the topics, and how many rows queries have read since their last checkpoint.
        slots: Knows how many slots of Spark are free for further jobs.
        clock: Returns a time in seconds.
        active: True if the query ran when Spark was last asked.
    """

    query: StreamingQuery
    plan: JobPlan
    phase: Phase
    checkpoint: Path
    interval_ms: int
    letters: LetterCount
    observer: Observer
    slots: SlotBook
    clock: Callable[[], float]
    active: bool = field(default=True, init=False)
    _asked_at: float = -ASK_SECONDS
    _looked_at: float = -LOOK_SECONDS
    _done: int | None = None
    _lag: Lag | None = None
    _progress: Mapping[str, object] = field(default_factory=dict)

    def failure(self) -> str | None:
        """Return the reason why the query failed; None while it runs, or if its backlog is done."""
        if self._runs():
            return None
        error = self.query.exception()
        if error is not None:
            causes = causes_of(error)
            message = brief(error, because=causes[-1] if causes else "")
            # The whole text of Spark's error is searched, since the shortened message may lack the sign of damage.
            return put_aside(self.checkpoint, message) if is_damage(str(error), causes) else message
        return "the query has ended without an error" if self.phase is Phase.LIVE else None

    def is_over(self) -> bool:
        """Return whether the phase is over: the backlog is done, or that of a live job has become too long."""
        if self.phase is not Phase.LIVE:
            return not self._runs()
        return self._lag is not None and is_left_behind(self.plan.mode, self.phase, self._lag.records)

    def progress(self) -> Mapping[str, object]:
        """Return rows, lag, state and times; they are read anew every few seconds."""
        now = self.clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._progress = self._look(now)
            self._looked_at = now
        return self._progress

    def stop(self) -> None:
        """Stop the query."""
        self.query.stop()
        self.active = False

    def _runs(self) -> bool:
        now = self.clock()
        # A query that reads a backlog is checked in each round, so that the live query starts soon after the backlog is
        # done.
        if self.active and (self.phase is not Phase.LIVE or now - self._asked_at >= ASK_SECONDS):
            self.active, self._asked_at = self.query.isActive, now
        return self.active

    def _look(self, now: float) -> Mapping[str, object]:
        last = self.query.lastProgress
        progress = {} if last is None else json.loads(last.json)
        positions, batch = self._positions(progress)
        note(self.checkpoint, reached(positions, [self.plan.output.name], self.observer.steady_ends()))
        done = self._messages_done(positions, batch)
        if self._done is None:
            rate = float(progress.get("processedRowsPerSecond") or 0.0)
        else:
            rate = max(0, done - self._done) / (now - self._looked_at)
        self._done = done
        topics = [topic.name for topic in self.plan.inputs]
        self._lag = self.observer.lag(topics, done)
        lag = {} if self._lag is None else {"lag_records": self._lag.records, "lag_seconds": self._lag.seconds}
        free = self.slots.free()
        return {
            "phase": self.phase,
            **({} if free is None else {"slots_free": free}),
            "rows_per_second": round(rate * self.observer.size(topics), 1),
            "dead_letters": self.letters.value,
            "positions": positions,
            **lag,
            **(checkpoint_figures(progress, self.interval_ms) if progress else {}),
        }

    def _positions(self, progress: Mapping[str, Any]) -> tuple[Offsets, int]:
        """Return the offsets up to which all is processed and committed, and the number of the next batch."""
        ends = [source["endOffset"] for source in progress.get("sources", ()) if source["endOffset"]]
        if ends:
            # The numbers of partitions are text in Spark's JSON.
            offsets = {topic: {int(p): at for p, at in partitions.items()} for topic, partitions in ends[0].items()}
            return offsets, progress["batchId"] + 1
        return position_of(self.checkpoint).offsets, next_batch(self.checkpoint)

    def _messages_done(self, offsets: Offsets, batch: int) -> int:
        """Return the number of messages before the query's position, including those since its last checkpoint."""
        done = sum(totals(offsets).values()) + self.observer.rows(str(self.query.runId), batch)
        # Right after a checkpoint the messages of the new batch aren't counted yet, so the sum may be smaller than at
        # the last look. The number of processed messages never falls, so the greater number is right.
        return max(done, self._done or 0)


def checkpoint_figures(progress: Mapping[str, Any], interval_ms: int) -> Mapping[str, object]:
    """Return the figures that a query reports at a checkpoint.

    Args:
        progress: Spark's progress.
        interval_ms: How long a batch lasts by design; the rest of its duration is the pause for the checkpoint.
    """
    times, operators = progress["durationMs"], progress["stateOperators"]
    pause = times.get("triggerExecution", 0) - interval_ms
    saved = (
        times.get("walCommit", 0)
        + times.get("commitOffsets", 0)
        + max((o["commitTimeMs"] for o in operators), default=0)
    )
    return {
        "at": progress["timestamp"],
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "checkpoint_ms": max(0, pause) if interval_ms else saved,
        "state_bytes": sum(_bytes(operator) for operator in operators),
    }


def _bytes(operator: Mapping[str, Any]) -> int:
    """Return the bytes of state that an operator keeps, on disk and in memory."""
    on_disk: int = operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    in_memory: int = operator["memoryUsedBytes"]
    return on_disk + in_memory
