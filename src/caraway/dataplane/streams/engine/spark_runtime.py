"""Jobs as Spark's streaming queries."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from caraway.dataplane.archive.store.messages import ArchivedMessages
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.streams.engine.damage import put_aside, repairing
from caraway.dataplane.streams.engine.lag import Observer, messages_between
from caraway.dataplane.streams.engine.losses import require_intact
from caraway.dataplane.streams.engine.phases import Phase, phase_at_start
from caraway.dataplane.streams.engine.slots import SlotBook
from caraway.dataplane.streams.engine.spark_query import SparkQuery
from caraway.dataplane.streams.spark.archived import Archived, ArchivedTopic
from caraway.dataplane.streams.spark.checkpoints import Position, position_of
from caraway.dataplane.streams.spark.java import java_session
from caraway.dataplane.streams.spark.jobs import Trigger, start_job, trigger_of
from caraway.dataplane.streams.spark.letters import LetterCount
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.block_sizes import records_per_message
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, DEAD_LETTERS_CONFIG
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.positions import TopicEnds
from caraway.errors import UnavailableError
from caraway.graph.plan.model import JobMode, JobPlan, TopicKind
from caraway.graph.plan.slots import slots_of, tasks_of

# Jobs that start together would all pause together at each checkpoint if their intervals were equal. So each job's
# interval is longer than the setting by milliseconds that are derived from its id, at most by a sixth of the setting.
STAGGER_PART = 6

_TRIGGERS = {Phase.ARCHIVE: Trigger.ARCHIVE, Phase.BACKFILL: Trigger.BACKLOG}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRuntime:
    """Starts jobs in one session.

    Attributes:
        session: The Spark session.
        bootstrap_servers: Kafka brokers.
        partitions: Partitions of a new topic.
        processors: How many processors the tasks share; None if unknown.
        checkpoint_of: Returns the folder of the checkpoint of a job.
        checkpoint_interval_seconds: Least time between two checkpoints of a job.
        observer: Knows the ends of the topics, and how many rows queries have read since their last checkpoint.
        slots: Knows the free slots of Spark.
        objects_url: The object store that has the archive (the setting `objects`).
        note_loss: Called with a job, a topic that lacks records which the job has read or written, and a text for the
            operator.
    """

    session: SparkSession
    bootstrap_servers: str
    partitions: int
    processors: int | None
    checkpoint_of: Callable[[str], Path]
    checkpoint_interval_seconds: int
    observer: Observer
    slots: SlotBook
    objects_url: str
    note_loss: Callable[[JobPlan, str, str], object] = lambda *_: None

    def start(self, plan: JobPlan, was: Phase | None = None) -> SparkQuery:
        """Start a job; topics that an interrupted commit has not created are created first.

        Raises:
            UnavailableError: The checkpoint can't be read, or its topics lack records of it, so the next start begins
                anew; or too few slots are free; or neither topics nor archive have all that the job is to read.
        """
        inputs = [topic.name for topic in plan.inputs]
        ensure_topics(self.bootstrap_servers, [plan.output.name, *inputs], self.partitions)
        ensure_topics(self.bootstrap_servers, [DEAD_LETTERS], 1, config=DEAD_LETTERS_CONFIG)
        self.observer.watch(plan.inputs, [plan.output.name])
        checkpoint = self.checkpoint_of(plan.job_id)
        events = [topic.name for topic in plan.inputs if topic.kind is TopicKind.EVENTS]
        size = max(records_per_message(self.bootstrap_servers, events).values(), default=1.0)
        tasks = tasks_of(plan, partitions=self.partitions, processors=self.processors).count
        position = _position(checkpoint)
        require_intact(self.bootstrap_servers, plan, checkpoint, position.offsets, self.note_loss)
        archived = self._archived(plan, position)
        phase = Phase.ARCHIVE if archived is not None else self._phase(plan, position, was, size)
        if plan.mode is JobMode.REAL_TIME:
            tasks = position.tasks or tasks
        interval = staggered(self.checkpoint_interval_seconds, plan.job_id)
        trigger = _TRIGGERS.get(phase) or trigger_of(plan.mode)
        letters = LetterCount(self.session, plan.job_id)
        # Only jobs in real-time mode occupy all of their tasks' slots at once, and for good, so only they reserve
        # slots.
        slots = slots_of(plan, partitions=self.partitions, tasks=tasks) if trigger is Trigger.REAL_TIME else 0
        self.slots.reserve(plan.job_id, slots)
        try:
            with repairing(checkpoint):
                query = start_job(
                    self.session,
                    plan,
                    bootstrap_servers=self.bootstrap_servers,
                    checkpoint=checkpoint,
                    checkpoint_interval_seconds=interval,
                    letters=letters,
                    trigger=trigger,
                    tasks=tasks,
                    records_per_message=size,
                    archived=archived,
                )
        except Exception:
            self.slots.release(plan.job_id)
            raise
        started = SparkQuery(
            query=query,
            plan=plan,
            phase=phase,
            checkpoint=checkpoint,
            interval_ms=round(1000 * interval) if trigger is Trigger.REAL_TIME else 0,
            letters=letters,
            observer=self.observer,
            slots=self.slots,
            clock=time.monotonic,
        )
        self.slots.follow(plan.job_id, lambda: started.active)
        return started

    def _archived(self, plan: JobPlan, position: Position) -> Archived | None:
        """Return the archive of a job's topics, if they don't have all that the job is to read; None if they have."""
        beginnings = TopicEnds(self.bootstrap_servers).beginnings(topic.name for topic in plan.inputs)
        late = {
            (topic, partition): first
            for topic, partitions in beginnings.items()
            for partition, first in partitions.items()
            if first > position.offsets.get(topic, {}).get(partition, 0)
        }
        if not late:
            return None
        topics = []
        for topic in plan.inputs:
            path = table_path(topic.name, topic_id(self.bootstrap_servers, topic.name))
            partitions = tuple(beginnings.get(topic.name, {}))
            topics.append(ArchivedTopic(name=topic.name, schema=topic.schema, path=path, partitions=partitions))
            messages = ArchivedMessages.opened(self.objects_url, path, topic.schema, partitions)
            archived = {} if messages is None else messages.positions
            for partition in partitions:
                # An unfinished batch must be repeated with the same offsets, and it would be read from the archive. So
                # the archive must have all of it.
                begun = position.begun.get(topic.name, {}).get(partition, 0)
                if position.unfinished and archived.get(partition, 0) < begun:
                    raise UnavailableError(
                        f"the job waits until the archive has topic {topic.name} up to offset {begun} of partition "
                        f"{partition}; it is at {archived.get(partition, 0)}"
                    )
                first = late.get((topic.name, partition), 0)
                if archived.get(partition, 0) < first:
                    raise UnavailableError(
                        f"topic {topic.name} begins at offset {first} of partition {partition}, and the archive has "
                        f"only what is before {archived.get(partition, 0)}; put the table {path} back into the object "
                        "store"
                    )
        return Archived(topics=tuple(topics), objects_url=self.objects_url)

    def _phase(self, plan: JobPlan, position: Position, was: Phase | None, records_per_message: float) -> Phase:
        if plan.mode is not JobMode.REAL_TIME:
            return Phase.LIVE
        topics = TopicEnds(self.bootstrap_servers)
        names = [topic.name for topic in plan.inputs]
        waiting = messages_between(position.offsets, topics.ends(names), topics.beginnings(names))
        return phase_at_start(plan.mode, round(waiting * records_per_message), unfinished=position.unfinished, was=was)


def _position(checkpoint: Path) -> Position:
    try:
        return position_of(checkpoint)
    except ValueError as error:
        raise UnavailableError(put_aside(checkpoint, f"its offsets can't be read ({error})")) from error


def slots_offered(session: SparkSession) -> int:
    """Return how many tasks Spark can run at once; 0 while it has no executors."""
    context = java_session(session).sparkContext()
    offered: int = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    return offered


def staggered(interval_seconds: int, job_id: str) -> float:
    """Return a job's checkpoint interval, derived from its id: always the same, hardly ever another job's."""
    part = int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:4])
    return interval_seconds + part % (1000 * interval_seconds // STAGGER_PART) / 1000
