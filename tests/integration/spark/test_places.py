"""Tests that an aggregate input that moves to another group is retracted in the old one, even by an attempt that has
never put it there.

An index that is divided by keys (decision 23) depends on this retraction, because each shard reads some partitions
only. So the records of each key on the topic, taken alone, must add up to the rows that count under the key.
"""

import shutil
from collections.abc import Iterable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.jobs import Trigger, start_job
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.codec import RETRACT
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.partitioning import partition_of
from caraway.dtypes.types import INT
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Aggregate, Input, Latest, Operator, Select
from caraway.graph.plan.model import TopicPlan
from caraway.graph.windows import ContinuousWindow
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker, Received, astray, consolidate
from tests.integration.spark.pipelines import SOURCES, Case, joined

PARTITIONS = 4
ARRIVALS = model.traffic(seed=3, count=150)
TIMES = range(80)
# The percentages of rows that the checkpoint has, that the failed attempt has read, and of all rows.
PARTS = (40, 75, 100)

# All of its columns but the key differ between versions.
CARTS = Latest(of=Select(of=Input(dataset="Clicks"), columns=("user", "number", "note")), keys=("number",))


def _counted(of: Operator, *keys: str) -> Case:
    number = AggregateSpec(
        function=AggregateFunction.COUNT,
        into="n",
        of=None,
        window=ContinuousWindow(length_us=None),
        default=None,
        dtype=INT,
    )
    return Case("By" + "And".join(key.title() for key in keys), Aggregate(of=of, keys=keys, aggregates=(number,)))


CASES = [
    # Events are counted by a joined column.
    _counted(joined(Input(dataset="Clicks")), "town"),
    # A join of tables is counted by columns of both sides.
    _counted(joined(CARTS), "town", "note"),
    # The versions of the table may be corrected.
    _counted(
        Latest(of=joined(Select(of=Input(dataset="Clicks"), columns=("user", "number", "note"))), keys=("number",)),
        "note",
        "town",
    ),
]


def _alive(spans: Iterable[tuple[int, int | None, tuple[object, ...]]]) -> list[list[str]]:
    """Return the groups of the rows that count at each time."""
    known = [(begin, inf if end is None else end, repr(group)) for begin, end, group in spans]
    return [sorted(group for begin, end, group in known if begin <= at < end) for at in TIMES]


def _counting(topic: TopicPlan, keys: tuple[str, ...], records: Iterable[Received]) -> list[list[str]]:
    places = [[column.name for column in topic.schema.columns].index(key) for key in keys]
    held = consolidate(records)
    ends = {identity[:-1]: r.record.time for identity, r in held.items() if r.record.op < 0}
    puts = [(identity, r.record) for identity, r in held.items() if r.record.op > 0]
    return _alive(
        (r.time, ends.get(identity[:-1]) if identity.endswith(b"\x00") else None, tuple(r.row[p] for p in places))
        for identity, r in puts
        if r.row is not None
    )


def _have_moved(records: Iterable[Received]) -> bool:
    """Return whether a row was in one partition and then in another, and was retracted."""
    places: dict[bytes, set[int]] = {}
    retractions = set()
    for received in records:
        if received.record.op == RETRACT:
            retractions.add(received.identity)
        else:
            places.setdefault(received.identity, set()).add(partition_of(received.key or b"", PARTITIONS))
    return any(len(of_row) > 1 and identity in retractions for identity, of_row in places.items())


def _view(topic: TopicPlan, keys: tuple[str, ...], records: Iterable[Received]) -> list[Any]:
    known = list(records)
    return [_counting(topic, keys, known), astray(known), _have_moved(known)]


@pytest.mark.full(reason="nine runs of jobs; test_restarts shows for one what becomes of rows after a restart")
@pytest.mark.slow
def test_each_key_knows_what_lives_there_and_nothing_else(broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    jobs = {case.name: model.plan(case, "places")[1] for case in CASES}
    sources = {topic.dataset: topic for job in jobs.values() for topic in job.inputs}
    ensure_topics(broker.bootstrap_servers, [*(topic.name for topic in sources.values()), DEAD_LETTERS], 1)
    ensure_topics(broker.bootstrap_servers, [job.output.name for job in jobs.values()], PARTITIONS)

    def send(part: int) -> None:
        for dataset, topic in sources.items():
            sent = model.sent(SOURCES[dataset], topic, ARRIVALS[dataset])
            begin, end = ([0, *PARTS][place] * len(sent) // 100 for place in (part, part + 1))
            broker.send(topic, sent[begin:end])

    def run_to_the_end(folder: str) -> None:
        queries = [
            start_job(
                spark,
                job,
                bootstrap_servers=broker.bootstrap_servers,
                checkpoint=tmp_path / folder / name,
                checkpoint_interval_seconds=60,
                trigger=Trigger.BACKLOG,
            )
            for name, job in jobs.items()
        ]
        for query in queries:
            assert query.awaitTermination(300)
            assert query.exception() is None

    send(0)
    run_to_the_end("jobs")
    # An attempt continues from the checkpoint and fails. The next one also starts there, and reads all rows since at
    # once.
    shutil.copytree(tmp_path / "jobs", tmp_path / "lost")
    send(1)
    run_to_the_end("lost")
    send(2)
    run_to_the_end("jobs")
    for case in CASES:
        operator, topic = case.operator, jobs[case.name].output
        assert isinstance(operator, Aggregate)
        assert topic.revised
        rows = model.expected(Case("Rows", operator.of), ARRIVALS)
        expected = _alive((begin, end, tuple(dict(row)[key] for key in operator.keys)) for begin, end, row in rows)
        wanted = [expected, [], True]
        assert broker.receive(topic, wanted, view=partial(_view, topic, operator.keys)) == wanted
