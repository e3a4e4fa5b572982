"""Pipelines over two sources of random rows, run by a job and by the in-process engine."""

import random
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from caraway.compute.reference.changes import SourceChange, arrive, events, table_of
from caraway.compute.reference.pipelines import compile_pipeline
from caraway.compute.reference.tables import Event
from caraway.dataplane.topics.codec import DELETE, PUT
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, ListType, optional
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Join, JoinKind, Operator
from caraway.graph.plan.model import GraphPlan, JobPlan, TopicPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.schemas import datasets_read, schema_of
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph, PipelineSpec
from tests.integration.spark.broker import Broker, Received, Sent, consolidate
from tests.timeouts import deadline_in

HORIZON_US = 10**12


@dataclass(frozen=True)
class Arrival:
    """A row that arrives at a source."""

    row: Mapping[str, Any]
    time_us: int
    delete: bool = False


@dataclass(frozen=True)
class Case:
    """A pipeline, and the rows at which it must fail.

    `poison` is true for the rows of dataset `of` at which the pipeline fails. If failing depends on more than a row,
    `same` is a pipeline that never fails and has the same output.
    """

    name: str
    operator: Operator
    poison: Callable[[Mapping[str, Any]], bool] | None = None
    of: str = "Clicks"
    same: Operator | None = None

    def is_poison(self, dataset: str, arrival: Arrival) -> bool:
        return self.poison is not None and dataset == self.of and not arrival.delete and self.poison(arrival.row)


def source(name: str, keys: Mapping[str, DataType], values: Mapping[str, DataType], timestamp: str) -> DatasetSpec:
    cdc = Cdc.UPSERT if keys else Cdc.APPEND
    connector = WebhookConnector(name="hook", endpoint=name, retention_us=HORIZON_US)
    return DatasetSpec(
        name=name,
        version=1,
        history_us=0,
        fields=(
            *(FieldSpec(name=column, dtype=dtype, key=True) for column, dtype in keys.items()),
            *(FieldSpec(name=column, dtype=dtype) for column, dtype in values.items()),
            FieldSpec(name=timestamp, dtype=DATETIME, timestamp=True),
        ),
        index=None,
        sources=(SourceSpec(connector=connector, disorder_us=HORIZON_US, cdc=cdc),),
    )


CLICKS = source(
    "Clicks",
    {},
    {
        "user": INT,
        "number": INT,
        "price": optional(FLOAT),
        "note": optional(STRING),
        "tags": ListType(STRING),
        "marks": ListType(optional(INT)),
    },
    "at",
)
USERS = source(
    "Users",
    {"user": INT},
    {"town": optional(STRING), "level": INT, "labels": ListType(STRING)},
    "since",
)
SOURCES = {spec.name: spec for spec in (CLICKS, USERS)}


def traffic(seed: int, count: int) -> dict[str, list[Arrival]]:
    """Make rows at few times, so that many coincide, in random order, with nulls, empty lists and deletes."""
    rng = random.Random(seed)
    clicks, users = [], []
    for _ in range(count):
        length = rng.choice([0, 1, 2, 3])
        row = {
            "user": rng.randrange(6),
            "number": rng.randrange(-3, 6),
            "price": rng.choice([None, 0.5, 1.25, -2.0, 1e300]),
            "note": rng.choice([None, "", "Äpfel", "2024-02-29", "b"]),
            "tags": [rng.choice("abc") for _ in range(length)],
            "marks": [rng.choice([None, 1, 2]) for _ in range(length)],
        }
        clicks.append(Arrival(row, rng.randrange(count // 2)))
    for _ in range(count // 3):
        labels = [rng.choice("xyz") for _ in range(rng.randrange(4))]
        row = {
            "user": rng.randrange(6),
            "town": rng.choice([None, "Ulm", "Bern"]),
            "level": rng.randrange(-2, 4),
            "labels": labels,
        }
        users.append(Arrival(row, rng.randrange(count // 2), delete=rng.random() < 0.15))
    return {"Clicks": clicks, "Users": users}


def plan(case: Case, suffix: str) -> tuple[GraphPlan, JobPlan]:
    """Return the plan of a case, whose topics and job have names of their own."""
    found = plan_graph(Graph(datasets=(*SOURCES.values(), derived(case.name, case.operator))))

    def named(topic: TopicPlan) -> TopicPlan:
        return replace(topic, name=f"{topic.name}.{suffix}", disorder_us=HORIZON_US)

    (job,) = found.jobs
    inputs = tuple(named(topic) for topic in job.inputs)
    job = replace(job, job_id=f"{job.job_id}.{suffix}", inputs=inputs, output=named(job.output))
    return replace(found, topics=tuple(map(named, found.topics)), jobs=(job,)), job


def joined(left: Operator) -> Join:
    """Return the join of steps over clicks with the users as of each click."""
    return Join(
        left=left,
        right="Users",
        how=JoinKind.LEFT,
        left_on=("user",),
        right_on=("user",),
        within_low_us=None,
        within_high_us=0,
        fields=("town",),
    )


def derived(name: str, operator: Operator) -> DatasetSpec:
    """Make the dataset of a pipeline."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = schema_of(operator, SOURCES)
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in schema.keys, timestamp=column == schema.timestamp)
        for column, dtype in schema.columns.items()
    )
    pipeline = PipelineSpec(name="made", inputs=datasets_read(operator), operator=operator)
    return DatasetSpec(name=name, version=1, history_us=0, fields=fields, index=None, pipelines=(pipeline,))


def expected(case: Case, arrivals: Mapping[str, Sequence[Arrival]]) -> list[Any]:
    """Return the output of a case by the in-process engine: rows, with the interval in which each holds."""
    spec = derived(case.name, case.same or case.operator)
    tables = {
        name: table_of(
            of,
            arrive(
                [],
                events(
                    of,
                    [
                        SourceChange(time_us=a.time_us, row=a.row, delete=a.delete)
                        for a in arrivals[name]
                        if not case.is_poison(name, a)
                    ],
                ),
            ),
        )
        for name, of in SOURCES.items()
    }
    table = compile_pipeline(spec, spec.pipelines[0], SOURCES)(tables.__getitem__)
    return _spelled(table.versions)


def held(topic: TopicPlan, spec: DatasetSpec) -> Callable[[Iterable[Received]], list[Any]]:
    """Return the function from the records of a topic to the form of `expected`."""
    names = [column.name for column in topic.schema.columns]

    def view(records: Iterable[Received]) -> list[Any]:
        found = sorted(consolidate(records).items(), key=lambda item: (item[1].record.time, item[0]))
        logged = [
            Event(
                {**dict(zip(names, r.record.row or (), strict=True)), topic.schema.timestamp: r.record.time},
                r.record.time,
                delete=r.record.op == DELETE,
            )
            for _, r in found
        ]
        if not spec.keys:
            assert all(r.record.op == PUT for _, r in found)
        return _spelled(table_of(spec, logged).versions)

    return view


def _spelled(versions: Iterable[Any]) -> list[Any]:
    rows = [[begin, end, sorted(row.items())] for row, begin, end in versions]
    return sorted(rows, key=repr)


def sent(spec: DatasetSpec, topic: TopicPlan, arrivals: Sequence[Arrival]) -> list[Sent]:
    """Return rows as records."""
    return [
        Sent(
            row=[a.row[column.name] for column in topic.schema.columns],
            key=[a.row[key] for key in spec.keys],
            time_us=a.time_us,
            op=DELETE if a.delete else PUT,
            ingested_us=number,
        )
        for number, a in enumerate(arrivals)
    ]


def letters(broker: Broker, job: JobPlan, least: int, *, limit: float = 30) -> list[dict[str, Any]]:
    """Return the dead letters of a job, each once; waits until there are at least so many."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(DEAD_LETTERS, 0, 0)])
    found: dict[str, dict[str, Any]] = {}
    deadline, more = deadline_in(limit), True
    while time.monotonic() < deadline and (more or len(found) < least):
        messages = consumer.consume(10_000, 0.5)
        more = bool(messages)
        for message in messages:
            value = message.value()
            if value is None:
                # Another test has erased a key, whose dead letters are removed by such messages.
                continue
            letter = orjson.loads(value)
            if letter.get("job") == job.job_id:
                found[letter["id"] + letter["rev"]] = letter
    consumer.close()
    return list(found.values())
