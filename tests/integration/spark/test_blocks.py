"""Tests that records of a job that leave together are blocks, each on the partition of its keys."""

import random
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.jobs import Trigger, start_job
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.blocks import block_of, is_block
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.partitioning import partition_of
from caraway.dtypes.types import INT
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.operators import Aggregate, Filter, Input
from caraway.graph.plan.model import JobPlan
from caraway.graph.windows import ContinuousWindow
from tests.integration.server.server_process import eventually
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import CLICKS, Case
from tests.messages import messages_on, positions_of
from tests.unit.compute.reference.building import spec_of

# A job, the users of the records that it must send by their identities, and its messages.
Run = tuple[JobPlan, dict[bytes, object], list[Message]]
PARTITIONS = 3
# Numbers below this one are dropped by a step; so the last record of a block may be one that isn't there any more.
LEAST = 50
COUNT = spec_of(AggregateFunction.COUNT, None, ContinuousWindow(length_us=None), "n", CLICKS)
KEPT = Filter(
    of=Input(dataset="Clicks"),
    predicate=Binary(op=BinaryOp.GE, left=Ref(name="number"), right=Literal(value=LEAST, dtype=INT)),
)
CASE = Case("Blocks", Aggregate(of=KEPT, keys=("user",), aggregates=(COUNT,)))
# A step with state; there are no users.
STATEFUL = Case("Joined", Aggregate(of=model.joined(KEPT), keys=("user",), aggregates=(COUNT,)))
# The records have no keys.
KEYLESS = Case("Keyless", KEPT)
# The sizes of the messages of the input; a message of one record is no block.
SIZES = (100, 1, 7, 100, 2, 1)


def consumed(broker: Broker, topic: str) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "enable.auto.commit": False})
    with closing(consumer):
        return [message for message in messages_on(consumer, topic) if not is_marker(message.key())]


def sent(broker: Broker, job: JobPlan) -> dict[bytes, object]:
    """Send messages to the input; return the user of each record that is kept, by identity."""
    source = job.inputs[0]
    codec, rng = RecordCodec(source.schema), random.Random(4)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    kept: dict[bytes, object] = {}
    for offset, size in enumerate(SIZES):
        values = []
        for number in range(size):
            user, amount = rng.randrange(9), rng.randrange(100)
            row = {"user": user, "number": amount, "price": 0.5, "note": None}
            columns: list[object] = [row.get(column.name, []) for column in source.schema.columns]
            values.append(codec.encode_value(op=PUT, time_us=number, ingested_us=offset, row=columns))
            if amount >= LEAST:
                kept[position_id(offset, 0, number)] = user
        producer.produce(source.name, block_of(values) if size > 1 else values[0], partition=0)
    assert producer.flush(60) == 0
    return kept


@pytest.fixture(
    scope="module",
    params=[
        (CASE, Trigger.REAL_TIME),
        (CASE, Trigger.BACKLOG),
        (STATEFUL, Trigger.REAL_TIME),
        (KEYLESS, Trigger.REAL_TIME),
    ],
    ids=["ends", "batch", "reader", "keyless"],
)
def run(
    request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """Yield the outcome of a job that gathers in one of the ways."""
    case, trigger = request.param
    folder: Path = tmp_path_factory.mktemp("blocks")
    _, job = model.plan(case, f"{case.name}-{trigger}")
    ensure_topics(broker.bootstrap_servers, [*(topic.name for topic in job.inputs), DEAD_LETTERS], 1)
    ensure_topics(broker.bootstrap_servers, [job.output.name], PARTITIONS)
    kept = sent(broker, job)
    query = start_job(
        spark,
        job,
        bootstrap_servers=broker.bootstrap_servers,
        checkpoint=folder / job.job_id,
        checkpoint_interval_seconds=5,
        trigger=trigger,
    )
    try:
        eventually(
            lambda: sum(len(positions_of(one)) for one in consumed(broker, job.output.name)) >= len(kept),
            lambda: str(query.exception()),
        )
        yield job, kept, consumed(broker, job.output.name)
    finally:
        query.stop()


def place_of(codec: RecordCodec, identity: bytes, user: object) -> int:
    """Return the partition of a record: that of its key, or of its identity if it has none."""
    return partition_of(codec.encode_key([user]) or b"" if codec.schema.keys else identity, PARTITIONS)


def test_each_record_is_there_once_on_its_partition(run: Run) -> None:
    job, kept, messages = run
    codec = RecordCodec(job.output.schema)
    found = []
    for message in messages:
        for _, value in positions_of(message):
            record = codec.decode_value(value)
            assert record.row is not None
            assert record.id is not None
            assert place_of(codec, record.id, record.row[0]) == message.partition()
            key = codec.encode_key(record.row[:1]) if codec.schema.keys else None
            assert message.key() == (None if is_block(message.value()) else key)
            found.append((record.id, record.row[0]))
    assert len(found) == len(kept)
    assert dict(found) == kept


def test_what_was_made_of_a_message_is_a_message_for_each_partition(run: Run) -> None:
    job, kept, messages = run
    codec = RecordCodec(job.output.schema)
    wanted = {(identity[:8], place_of(codec, identity, user)) for identity, user in kept.items()}
    if job.dataset == STATEFUL.name:
        # Rows are gathered as far as they wait for the step together.
        assert len(wanted) <= len(messages) < len(kept)
    else:
        assert len(messages) == len(wanted)


def test_no_record_waits_for_a_row_behind_it_of_which_nothing_is_made(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of nobody's town correct no click. One of them may be the last row that comes for a long time."""
    _, job = model.plan(STATEFUL, "quiet")
    ensure_topics(broker.bootstrap_servers, [*(topic.name for topic in job.inputs), DEAD_LETTERS, job.output.name], 1)
    clicks, users = sorted(job.inputs, key=lambda topic: topic.dataset)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    row = {"user": 1, "number": LEAST, "price": 0.5, "note": None, "town": None, "level": 1}
    nobody = row | {"user": 2}
    of_clicks, of_users = RecordCodec(clicks.schema), RecordCodec(users.schema)
    values = [
        codec.encode_value(op=PUT, time_us=1, ingested_us=1, row=[of.get(c.name, []) for c in codec.schema.columns])
        for codec, of in ((of_clicks, row), (of_users, nobody))
    ]

    def has(count: int) -> bool:
        return sum(len(positions_of(one)) for one in consumed(broker, job.output.name)) == count

    # The batch of real-time mode, at whose end everything is sent, is longer than the test may take.
    query = start_job(
        spark,
        job,
        bootstrap_servers=broker.bootstrap_servers,
        checkpoint=tmp_path / job.job_id,
        checkpoint_interval_seconds=3_600,
        trigger=Trigger.REAL_TIME,
    )
    try:
        for count in range(50, 1_050, 50):
            for _ in range(50):
                producer.produce(clicks.name, values[0])
                for _ in range(3):
                    producer.produce(users.name, values[1], of_users.encode_key([2]))
            assert producer.flush(60) == 0
            eventually(partial(has, count), lambda: str(query.exception()))
    finally:
        query.stop()
