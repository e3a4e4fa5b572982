"""Offline reads of a case, from records in memory as a server, and jobs, would have written them to topics.

The records of sources are those that were logged. If a job computes the input of an index, its records are made of what
the oracle computed: this file tests how records are read, and tests/parity tests how jobs write them.
"""

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from caraway.client import arguments
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.functions import compile_function
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.expr.polars.values import from_polars
from caraway.featuresets import Featureset
from caraway.graph.plan.model import IndexPlan
from caraway.graph.plan.planner import plan_graph
from caraway.offline.engine import OfflineEngine
from caraway.offline.queries.evaluation import evaluate
from caraway.offline.queries.inputs import InputPart
from caraway.offline.reader import OfflineReader
from tests.unit.offline.topics import GivenTopics, topic_of
from tests.unit.oracle import plain
from tests.unit.oracle.cases import Case
from tests.unit.oracle.plain import Fact, Logged, Row
from tests.unit.oracle.product import Question
from tests.unit.oracle.semantics import Oracle

# A revision that a later one replaces, and one that holds.
EARLIER, HOLDS = b"\x01", b"\x02"


def plans_of(case: Case) -> dict[str, IndexPlan]:
    """Return the plans of the indexes, by dataset."""
    graph = arguments.gather(list(case.datasets), ())
    return {plan.dataset: plan for plan in plan_graph(graph).indexes}


def is_logged(case: Case) -> bool:
    """Return whether each record has the time at which a row of a source was accepted.

    So it is for a source, and for what a pipeline makes of its rows one by one.
    """
    step = case.described.derived.get(case.read)
    return step is None or is_of_single_rows(case, step)


def is_of_single_rows(case: Case, step: plain.Step) -> bool:
    """Return whether a step, or those before it, take each event of a source by itself."""
    while not isinstance(step, plain.Read):
        if not isinstance(step, plain.Filter | plain.DropNull | plain.Change | plain.Latest | plain.Aggregate):
            return False
        step = step.of
    return case.described.sources.get(step.dataset) == ()


def accepted(case: Case, step: plain.Step) -> Callable[[Fact], int]:
    """Return the function that returns when the row of a fact was accepted; 0 if the fact is of several rows."""
    if not is_of_single_rows(case, step):
        return lambda _: 0
    return lambda fact: case.logged[fact.order[0]].ingested


def reader_of(case: Case, oracle: Oracle, *, known: bool = False) -> OfflineReader:
    """Return a reader of the dataset that is read, and of all keyed sources."""
    plans = [plan for name, plan in plans_of(case).items() if name == case.read or name in case.described.sources]
    topics = GivenTopics({plan.topic: messages_of(case, plan, oracle) for plan in plans})
    return OfflineReader(topics, plans, [topic_of(plan) for plan in plans], known=known)


def answers(
    case: Case, reader: OfflineReader, questions: Sequence[Question], columns: Sequence[str]
) -> list[tuple[bool, dict[str, Any]]]:
    """Return whether a key was found, and some columns of its row, for each question."""
    # A reader takes the parts of a key in the order of the dataset's fields.
    order = [case.keys.index(name) for name in case.types if name in case.keys]
    keys = [tuple(as_stored(key[position]) for position in order) for key, _ in questions]
    values, found = reader.read(case.read, keys, [at for _, at in questions], columns)
    return [
        (there, {name: column[row] for name, column in zip(columns, values, strict=True)})
        for row, there in enumerate(found)
    ]


def features(case: Case, reader: OfflineReader, asked: Featureset, questions: Sequence[Question]) -> list[Row]:
    """Return all features that aren't given, for each question, as an offline query computes them."""
    catalog = Catalog("a case", arguments.gather(list(case.datasets), [asked]))
    given = [f"{asked._name}.{name}" for name in case.keys]
    plan = OfflineEngine(catalog, reader, compile_function).plan(given, [asked._name])
    inputs = {name: [key[position] for key, _ in questions] for position, name in enumerate(given)}
    found = evaluate(plan, InputPart(inputs, pa.table({}), times=[at for _, at in questions]), 0)
    assert found is not None
    assert found.errors == [None] * len(questions)
    columns = {
        name.partition(".")[2]: from_polars(pl.Series(column), plan.types()[name])
        for name, column in found.columns.items()
    }
    return [{name: values[row] for name, values in columns.items()} for row in range(len(questions))]


def messages_of(case: Case, plan: IndexPlan, oracle: Oracle) -> list[Message]:
    """Return the messages on the topic that an index reads."""
    rng = random.Random(case.chosen)
    if plan.dataset in case.described.sources:
        return logged_messages(plan, [row for row in case.logged if row.source == plan.dataset], rng)
    step = case.described.derived[plan.dataset]
    if isinstance(step, plain.Aggregate):
        return input_messages(plan, step, oracle, rng, accepted(case, step))
    return version_messages(case, plan, oracle.facts(step), rng, accepted(case, step))


# Records -------------------------------------------------------------------------------------------------------------


def as_stored(value: object) -> object:
    """Return a value as records have it: decimals are texts, windows are lists."""
    match value:
        case Decimal():
            return str(value)
        case tuple():
            return list(value)
        case _:
            return value


def logged_messages(plan: IndexPlan, logged: Sequence[Logged], rng: random.Random) -> list[Message]:
    """Return the messages of a source; events that are accepted together come in blocks."""
    codec = RecordCodec(plan.schema)
    messages: list[Message] = []
    waiting: list[bytes] = []
    for row in logged:
        value = codec.encode_value(
            op=DELETE if row.deleted else PUT,
            time_us=row.time,
            ingested_us=row.ingested,
            row=[as_stored(row.row[column.name]) for column in codec.schema.columns],
        )
        key = codec.encode_key([row.row[column.name] for column in codec.schema.keys])
        if key is not None:
            messages.append((key, value, 0, len(messages)))
            continue
        waiting.append(value)
        if rng.random() < 0.5:
            messages.append((None, block_of(waiting), 0, len(messages)))
            waiting = []
    return messages + [(None, value, 0, len(messages) + number) for number, value in enumerate(waiting)]


class Job:
    """The topic of a job's records, whose identities are in the order of the rows."""

    def __init__(self, plan: IndexPlan, rng: random.Random) -> None:
        self._plan = plan
        self._rng = rng
        self._codec = RecordCodec(plan.schema)
        self._values: list[tuple[bytes | None, bytes]] = []

    def send(self, op: int, time: int, identity: bytes, row: Row, ingested: int) -> None:
        """Send a record; if records may be revised, sometimes after another one that it replaces."""
        if self._plan.revised and self._rng.random() < 0.5:
            self._encode(op, time - 1_500_000, identity, row, EARLIER, ingested=ingested)
        if self._plan.revised and self._rng.random() < 0.3:
            gone = position_id(len(self._values), 1) + identity[12:]
            self._encode(op, time, gone, row, EARLIER, ingested=ingested)
            self._encode(RETRACT, time, gone, row, HOLDS, ingested=ingested)
        self._encode(op, time, identity, row, HOLDS if self._plan.revised else None, ingested=ingested)

    def _encode(self, op: int, time: int, identity: bytes, row: Row, rev: bytes | None, *, ingested: int) -> None:
        values = [as_stored(row[column.name]) for column in self._plan.schema.columns]
        value = self._codec.encode_value(
            op=op, time_us=time, ingested_us=ingested, row=values, record_id=identity, rev=rev
        )
        self._values.append((self._codec.encode_key([row[name.name] for name in self._plan.schema.keys]), value))

    def messages(self) -> list[Message]:
        """Return all records in any order, for identities and revisions decide, some of them twice."""
        values = self._values + self._rng.sample(self._values, len(self._values) // 5)
        self._rng.shuffle(values)
        return [(key, value, 0, offset) for offset, (key, value) in enumerate(values)]


def in_order(facts: Sequence[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: (fact.time, fact.order))


def version_messages(
    case: Case, plan: IndexPlan, facts: Sequence[Fact], rng: random.Random, ingested: Callable[[Fact], int]
) -> list[Message]:
    """Return the messages of a table that a job computes."""
    job = Job(plan, rng)
    empty = dict.fromkeys(column.name for column in plan.schema.columns)
    for number, fact in enumerate(in_order(facts)):
        named = dict(zip(case.keys, fact.key, strict=True))
        op, row = DELETE if fact.deleted else PUT, empty | fact.row | named
        job.send(op, fact.time, position_id(number, 0), row, ingested(fact))
    return job.messages()


def input_messages(
    plan: IndexPlan, step: plain.Aggregate, oracle: Oracle, rng: random.Random, ingested: Callable[[Fact], int]
) -> list[Message]:
    """Return the aggregate inputs that a job sends: rows, and for rows of a table also their ends.

    A job also sends a version that never held, and its end.
    """
    job = Job(plan, rng)
    entries = sorted(oracle.placed(step), key=lambda entry: (entry.fact.time, entry.fact.order))
    for number, entry in enumerate(entries):
        row = entry.fact.row | {plan.fields[-1].name: entry.fact.time}
        table = b"\x00" if entry.fact.key else b""
        job.send(PUT, entry.time, position_id(number, 0) + table, row, ingested(entry.fact))
        if entry.end is not None:
            job.send(DELETE, entry.end, position_id(number, 0) + b"\x01", row, ingested(entry.fact))
    return job.messages()
