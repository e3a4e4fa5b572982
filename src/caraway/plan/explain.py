"""What a plan is, told for people and programs: jobs with their steps and state, topics, indexes, what is shared.

A further reader of the plan that engine, index and ingest follow: it tells what they do, since they do nothing else.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from caraway.dtypes.durations import print_duration
from caraway.expr.printer import print_node
from caraway.graph.operators import (
    Aggregate,
    AggregateSpec,
    Assign,
    AssignFunction,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Explode,
    Filter,
    FilterFunction,
    First,
    Input,
    Join,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.trees import parents
from caraway.graph.windows import print_window
from caraway.plan.model import GraphPlan, IndexPlan, JobPlan, TopicPlan

# An expression that is longer is cut: this is an overview.
SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExplained:
    """A step of a job.

    Attributes:
        text: What it does.
        state: What it keeps between rows, and for how long; empty if nothing.
        steps: The steps that its rows come from.
    """

    text: str
    state: str = ""
    steps: tuple["StepExplained", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplained:
    """A job.

    Attributes:
        job_id: Its id.
        dataset: The dataset that it makes.
        pipeline: The name of the pipeline.
        mode: Its mode.
        mode_reason: Why this one.
        step: Its last step.
        horizon: How late a record may come and still correct what depends on it.
        reads: The topics of its inputs.
        writes: The topic of its output.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExplained:
    """A topic.

    Attributes:
        dataset: The dataset whose rows it has.
        name: Its name.
        kind: What its records are.
        keys: The columns of the records' key.
        columns: The other columns.
        partitions: How many partitions it gets when it is made.
        writers: Webhook endpoints and jobs that write it.
        readers: Jobs and indexes that read it; if there are several, they share it.
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
    """An index: `values` are the columns or aggregates that a lookup by `keys` gives."""

    dataset: str
    kind: str
    topic: str
    keys: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExplained:
    """All that runs for a graph, and what of it serves several readers."""

    jobs: tuple[JobExplained, ...]
    topics: tuple[TopicExplained, ...]
    indexes: tuple[IndexExplained, ...]
    shared: tuple[str, ...]


def explain(plan: GraphPlan, *, partitions: int) -> PlanExplained:
    """Tell what a plan is, where new topics get so many partitions."""
    topics = tuple(_topic(topic, plan, partitions) for topic in plan.topics)
    return PlanExplained(
        jobs=tuple(_job(job) for job in plan.jobs),
        topics=topics,
        indexes=tuple(_index(index) for index in plan.indexes),
        shared=(*_shared_topics(topics), *_repeated_steps(plan.jobs)),
    )


def _job(job: JobPlan) -> JobExplained:
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
    )


def _topic(topic: TopicPlan, plan: GraphPlan, partitions: int) -> TopicExplained:
    keys = tuple(column.name for column in topic.schema.keys)
    into = [ingest.connector for ingest in plan.ingests if ingest.topic.name == topic.name]
    endpoints = [f"webhook {connector.name}/{connector.endpoint}" for connector in into]
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
        writers=(*endpoints, *written),
        readers=(*read, *indexes),
    )


def _index(index: IndexPlan) -> IndexExplained:
    keys = tuple(column.name for column in index.keys)
    columns = tuple(field.name for field in index.fields if field.name not in keys)
    aggregates = tuple(_aggregate(aggregate) for aggregate in index.aggregates)
    return IndexExplained(
        dataset=index.dataset, kind=str(index.kind), topic=index.topic, keys=keys, values=aggregates or columns
    )


def _aggregate(aggregate: AggregateSpec) -> str:
    window = None if aggregate.window is None else print_window(aggregate.window)
    arguments = ", ".join(part for part in (aggregate.of, window) if part is not None)
    return f"{aggregate.into} = {aggregate.function}({arguments})"


def _step(operator: Operator, job: JobPlan) -> StepExplained:
    return StepExplained(
        text=_text(operator),
        state=_state(operator, job),
        steps=tuple(_step(parent, job) for parent in parents(operator)),
    )


def _text(operator: Operator) -> str:
    match operator:
        case Input():
            return f"read {operator.dataset}"
        case Filter():
            return f"filter {_cut(print_node(operator.predicate))}"
        case FilterFunction():
            return f"filter {_function(operator.function.name, operator.traced is not None)}"
        case Assign():
            return "assign " + ", ".join(f"{c.name} = {_cut(print_node(c.expr))}" for c in operator.columns)
        case AssignFunction():
            return f"assign {operator.column} = {_function(operator.function.name, operator.traced is not None)}"
        case Transform():
            return f"transform {_function(operator.function.name, traced=False)}"
        case Select() | Drop() | DropNull() | Explode():
            return f"{type(operator).__name__.lower()} {', '.join(operator.columns)}"
        case Rename():
            return "rename " + ", ".join(f"{old} to {new}" for old, new in operator.pairs)
        case Union():
            return "union"
        case Dedup():
            window = "" if operator.window is None else f" in {print_window(operator.window)}"
            return f"dedup by {', '.join(operator.by)}{window}"
        case Join():
            on = ", ".join(f"{left} = {right}" for left, right in zip(operator.left_on, operator.right_on, strict=True))
            return f"{operator.how} join with {operator.right} on {on}"
        case First() | Latest():
            return f"{type(operator).__name__.lower()} of each {', '.join(operator.keys)}"
        case Aggregate():
            window = "" if operator.window is None else f" in {print_window(operator.window)}"
            return f"aggregate by {', '.join(operator.keys)}{window}: {', '.join(a.into for a in operator.aggregates)}"
        case Changelog():
            return f"changelog, {operator.column} tells {'inserts' if operator.marks_inserts else 'deletes'}"


def _state(operator: Operator, job: JobPlan) -> str:
    horizon = print_duration(job.horizon_us)
    match operator:
        case Join():
            return (
                f"left rows of {horizon}; versions of {operator.right} of {horizon}, and of each key the one that "
                "holds before"
            )
        case Dedup():
            return f"rows of {horizon}, and of each group the one before"
        case Changelog():
            return f"versions of {horizon}, and of each key the one that holds before"
        case Aggregate() if _is_keyed(operator.of, job):
            return f"versions of {horizon}, and of each key the one that holds before, to take its contribution back"
        case First():
            return "of each key the first row, for good"
        case _:
            return ""


def _is_keyed(operator: Operator, job: JobPlan) -> bool:
    match operator:
        case Input():
            return any(topic.schema.keys for topic in job.inputs if topic.dataset == operator.dataset)
        case First() | Latest() | Aggregate():
            return True
        case Changelog():
            return False
        case _:
            return _is_keyed(parents(operator)[0], job)


def _function(name: str, traced: bool) -> str:  # noqa: FBT001 (one of two words)
    return f"by {name}, {'as an expression' if traced else 'in Python'}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _shared_topics(topics: tuple[TopicExplained, ...]) -> Iterator[str]:
    for topic in topics:
        if len(topic.readers) > 1:
            yield f"topic {topic.name}: read by {', '.join(topic.readers)}"


def _repeated_steps(jobs: tuple[JobPlan, ...]) -> Iterator[str]:
    """Name stateful work that several jobs do, each for itself: a dataset between would do it once."""
    counts = Counter(step for job in jobs for step in _stateful(job.operator, job))
    for step, count in counts.items():
        if count > 1:
            done = f"not shared: {count} jobs do `{_text(step)}` over the same input"
            yield f"{done}; a dataset of its own would do it once"


def _stateful(operator: Operator, job: JobPlan) -> Iterator[Operator]:
    for parent in parents(operator):
        yield from _stateful(parent, job)
    if _state(operator, job):
        yield operator
