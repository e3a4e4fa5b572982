"""A description of a plan for people and programs: jobs with their steps and state, topics, indexes, shared work.

The description is made from the same plan that engine, index and ingest follow, so it can't differ from what they do.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from caraway.dtypes.durations import print_duration
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Input, Join, Operator, Select
from caraway.graph.plan.model import GraphPlan, IndexPlan, JobPlan, TopicPlan
from caraway.graph.plan.slots import slots_of, tasks_of
from caraway.graph.plan.steps import state_of, text_of
from caraway.graph.trees import parents, with_parents
from caraway.graph.windows import print_window
from caraway.process.displays import Table, html


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExplained:
    """A step of a job.

    Attributes:
        text: A phrase that says what the step does.
        state: A phrase about the state that the step keeps between rows, and for how long; empty if nothing.
        steps: The steps that its rows come from.
    """

    text: str
    state: str = ""
    steps: tuple["StepExplained", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplained:
    """A job.

    Attributes:
        job_id: The id of the job.
        dataset: The dataset that it makes.
        pipeline: The name of the pipeline.
        mode: The mode in which Spark runs the job.
        mode_reason: Why the job runs in this mode.
        step: The last step of the job.
        horizon: How late a record may come so that the steps with state still correct what depends on it.
        reads: The topics of its inputs.
        writes: The topic of its output.
        unread: Columns of the inputs that the job doesn't take: a select or a join leaves them out.
        tasks: How many tasks each step that keeps rows would have if the job began now.
        tasks_reason: Why the steps have this many tasks.
        slots: How many of Spark's slots the job holds.
    """

    job_id: str
    dataset: str
    pipeline: str
    mode: str
    mode_reason: str
    step: StepExplained
    horizon: str
    reads: tuple[str, ...]
    writes: str
    unread: tuple["UnreadColumns", ...]
    tasks: int
    tasks_reason: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadColumns:
    """Columns of an input that a job doesn't take."""

    dataset: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExplained:
    """A topic.

    Attributes:
        dataset: The dataset whose rows are on the topic.
        name: The name of the topic.
        kind: The kind of its records.
        keys: The columns of the records' key.
        columns: The other columns.
        partitions: How many partitions the topic gets when it is created.
        writers: Webhook endpoints and jobs that write it.
        readers: Jobs and indexes that read it; several readers share one topic.
    """

    dataset: str
    name: str
    kind: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    partitions: int
    writers: tuple[str, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexExplained:
    """An index: `values` are the columns or aggregates that a lookup by `keys` returns."""

    dataset: str
    kind: str
    topic: str
    keys: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExplained:
    """All that runs for a graph, which topics serve several readers, and the slots of all jobs together."""

    jobs: tuple[JobExplained, ...]
    topics: tuple[TopicExplained, ...]
    indexes: tuple[IndexExplained, ...]
    shared: tuple[str, ...]
    slots: int

    def _repr_html_(self) -> str:
        # Notebooks call the method of this name to show an object as HTML.
        jobs = [
            (job.dataset, job.pipeline, job.mode, job.mode_reason, _steps(job.step), job.slots) for job in self.jobs
        ]
        indexes = [
            (index.dataset, index.kind, ", ".join(index.keys), ", ".join(index.values)) for index in self.indexes
        ]
        topics = [
            (topic.dataset, topic.kind, topic.partitions, ", ".join(topic.writers), ", ".join(topic.readers))
            for topic in self.topics
        ]
        return html(
            "Plan",
            [f"{len(self.jobs)} jobs", f"{self.slots} slots", f"{len(self.topics)} topics"],
            [
                Table("jobs", ("dataset", "pipeline", "mode", "why", "steps", "slots"), jobs),
                Table("indexes", ("dataset", "kind", "keys", "values"), indexes),
                Table("topics", ("dataset", "kind", "partitions", "written by", "read by"), topics),
                Table("shared", ("",), [(line,) for line in self.shared]),
            ],
        )


def _steps(step: StepExplained, depth: int = 0) -> str:
    """Return a step and those that its rows come from, a line each."""
    kept = f" [keeps {step.state}]" if step.state else ""
    below = "".join(f"\n{_steps(each, depth + 1)}" for each in step.steps)
    return f"{'  ' * depth}{step.text}{kept}{below}"


def explain(plan: GraphPlan, *, partitions: int, processors: int | None = None) -> PlanExplained:
    """Return a description of a plan.

    Args:
        plan: The plan.
        partitions: How many partitions new topics get.
        processors: How many processors the tasks share; None if that isn't known.
    """
    topics = tuple(_topic(topic, plan, partitions) for topic in plan.topics)
    jobs = tuple(_job(job, partitions, processors) for job in plan.jobs)
    return PlanExplained(
        jobs=jobs,
        topics=topics,
        indexes=tuple(_index(index) for index in plan.indexes),
        shared=(*_shared_topics(topics), *_repeated_steps(plan.jobs)),
        slots=sum(job.slots for job in jobs),
    )


def _job(job: JobPlan, partitions: int, processors: int | None) -> JobExplained:
    tasks = tasks_of(job, partitions=partitions, processors=processors)
    return JobExplained(
        job_id=job.job_id,
        dataset=job.dataset,
        pipeline=job.pipeline,
        mode=str(job.mode),
        mode_reason=job.mode_reason,
        step=_step(job.operator, job),
        horizon=print_duration(job.horizon_us),
        reads=tuple(topic.name for topic in job.inputs),
        writes=job.output.name,
        unread=tuple(_unread(job)),
        tasks=tasks.count,
        tasks_reason=tasks.reason,
        slots=slots_of(job, partitions=partitions, tasks=tasks.count),
    )


def _unread(job: JobPlan) -> Iterator[UnreadColumns]:
    """Yield the columns of each input that no occurrence of this input in the operator tree uses."""
    taken: dict[str, set[str]] = {}
    for dataset, columns in _read(job.operator):
        every = {column.name for topic in job.inputs if topic.dataset == dataset for column in topic.schema.columns}
        taken.setdefault(dataset, set()).update(every if columns is None else columns)
    for topic in job.inputs:
        keys = {key.name for key in topic.schema.keys}
        left = tuple(c.name for c in topic.schema.columns if c.name not in taken[topic.dataset] | keys)
        if left:
            yield UnreadColumns(dataset=topic.dataset, columns=left)


def _read(operator: Operator) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Yield each input of a tree with the columns that are used of it; None stands for all columns."""
    match operator:
        case Input():
            yield operator.dataset, None
            return
        case Select(of=Input(dataset=dataset)):
            yield dataset, operator.columns
            return
        case Join():
            yield operator.right, operator.fields
    for parent in parents(operator):
        yield from _read(parent)


def _topic(topic: TopicPlan, plan: GraphPlan, partitions: int) -> TopicExplained:
    keys = tuple(column.name for column in topic.schema.keys)
    into = [ingest.source.connector for ingest in plan.ingests if ingest.topic.name == topic.name]
    sources = [
        f"webhook {connector.name}/{connector.endpoint}"
        if isinstance(connector, WebhookConnector)
        else f"source {connector.identifier}"
        for connector in into
    ]
    written = [f"job {job.job_id}" for job in plan.jobs if job.output.name == topic.name]
    read = [f"job {job.job_id}" for job in plan.jobs if topic.name in {given.name for given in job.inputs}]
    indexes = [f"index of {index.dataset}" for index in plan.indexes if index.topic == topic.name]
    return TopicExplained(
        dataset=topic.dataset,
        name=topic.name,
        kind=str(topic.kind),
        keys=keys,
        columns=tuple(column.name for column in topic.schema.columns if column.name not in keys),
        partitions=partitions,
        writers=(*sources, *written),
        readers=(*read, *indexes),
    )


def _index(index: IndexPlan) -> IndexExplained:
    keys = tuple(column.name for column in index.keys)
    columns = tuple(field.name for field in index.fields if field.name not in keys)
    aggregates = tuple(_aggregate(aggregate) for aggregate in index.aggregates)
    return IndexExplained(
        dataset=index.dataset,
        kind=str(index.kind),
        topic=index.topic,
        keys=keys,
        values=aggregates or columns,
    )


def _aggregate(aggregate: AggregateSpec) -> str:
    window = None if aggregate.window is None else print_window(aggregate.window)
    arguments = ", ".join(part for part in (aggregate.of, window) if part is not None)
    return f"{aggregate.into} = {aggregate.function}({arguments})"


def _step(operator: Operator, job: JobPlan) -> StepExplained:
    return StepExplained(
        text=text_of(operator),
        state=state_of(operator, job),
        steps=tuple(_step(parent, job) for parent in parents(operator)),
    )


def _shared_topics(topics: tuple[TopicExplained, ...]) -> Iterator[str]:
    for topic in topics:
        if len(topic.readers) > 1:
            yield f"topic {topic.name}: read by {', '.join(topic.readers)}"


def _repeated_steps(jobs: tuple[JobPlan, ...]) -> Iterator[str]:
    """Yield a note for each stateful step that several jobs run separately; a dataset in between would run it once."""
    steps = [step for job in jobs for step in _stateful(job.operator, job)]
    counts = Counter(_but_for_columns(step) for step in steps)
    for step in {_but_for_columns(step): step for step in reversed(steps)}.values():
        if (count := counts[_but_for_columns(step)]) > 1:
            done = f"not shared: {count} jobs do `{text_of(step)}` over the same input"
            yield f"{done}; a dataset of its own would do it once"


def _but_for_columns(operator: Operator) -> Operator:
    """Return a tree without its choice of columns, so that steps over the same rows compare as equal."""
    if isinstance(operator, Select):
        return _but_for_columns(operator.of)
    bare = with_parents(operator, _but_for_columns)
    return replace(bare, fields=()) if isinstance(bare, Join) else bare


def _stateful(operator: Operator, job: JobPlan) -> Iterator[Operator]:
    for parent in parents(operator):
        yield from _stateful(parent, job)
    if state_of(operator, job):
        yield operator
