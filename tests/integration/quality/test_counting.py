"""Rows are counted once, whenever the process dies: against real Kafka and Postgres, and a count by hand."""

import math
import random
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from caraway.client import arguments
from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.report import Status
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.partitioning import partition_of
from caraway.dataplane.topics.positions import TopicEnds, is_behind
from caraway.graph.plan.model import CheckPlan, RecordSchema
from caraway.graph.plan.planner import plan_graph
from caraway.offline.monitoring.quality.expectation_alerts import states_of
from caraway.offline.monitoring.quality.follower import FOLDER, QualityFollower
from caraway.offline.monitoring.quality.store import Findings, QualityStore
from caraway.state.database import connect
from caraway.state.profiles import ProfileStore, Subject
from tests.integration.quality.stalls import definitions
from tests.timeouts import deadline_in

PARTITIONS = 2
NOW = datetime.now(UTC).replace(microsecond=0)


class DiedError(Exception):
    """The process died."""


class Dying(QualityStore):
    """A store whose process dies before or after it has recorded something, as often as it is told."""

    def __init__(self, engine: Any, chance: random.Random) -> None:
        super().__init__(engine)
        self.chance, self.deaths = chance, 4

    def add(self, found: Findings, allowed: Any = lambda _: True) -> bool:
        """Record, or die."""
        dies = self.deaths and self.chance.random() < 0.7
        before = self.chance.random() < 0.5
        if dies and before:
            self.deaths -= 1
            raise DiedError
        added = super().add(found, allowed)
        if dies:
            self.deaths -= 1
            raise DiedError
        return added


@pytest.fixture
def store(postgres: str) -> Iterator[QualityStore]:
    engine = connect(postgres)
    yield QualityStore(engine)
    engine.dispose()


def planned(kafka: str) -> dict[str, CheckPlan]:
    """Return the checks of the stalls by dataset; their topics exist."""
    datasets = definitions(int.from_bytes(secrets.token_bytes(3)))
    checks = {check.dataset.name: check for check in plan_graph(arguments.gather(datasets, ())).checks}
    topics = {check.topic.name for check in checks.values()}
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
        future.result()
    return checks


def test_the_plan_says_where_rows_are_checked() -> None:
    checks = {check.dataset.name: check for check in plan_graph(arguments.gather(definitions(1), ())).checks}
    sales, dear, twice, hours = (checks[name] for name in ("Sales", "Dear", "Twice", "Hours"))
    assert (sales.repeats, twice.repeats, hours.repeats, dear.repeats) == (False, True, True, True)
    assert hours.topic.name == f"{hours.erased_on}.rows"
    assert all(check.erased_on == check.topic.name for check in (sales, dear, twice))
    assert len({check.check_id for check in checks.values()}) == len(checks)
    # Other expectations of the same rows are counted apart.
    other = replace(sales, suite=replace(sales.suite, version=99))
    assert other.check_id.partition("/")[0] == sales.check_id.partition("/")[0]
    assert other.check_id != sales.check_id


def sent(kafka: str, topic: str, messages: list[tuple[bytes | None, bytes, int]]) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for key, value, partition in messages:
        producer.produce(topic, value, key, partition)
    assert producer.flush(60) == 0


Row = tuple[str, float | None, datetime]


def some_rows(chance: random.Random, count: int) -> list[Row]:
    return [
        (
            chance.choice(["apples", "Pears", "b2"]),
            chance.choice([None, -1.0, 0.5, 60.0, 99.0, 101.0, float("nan")]),
            NOW - timedelta(minutes=chance.randrange(60)),
        )
        for _ in range(count)
    ]


def record(schema: RecordSchema, row: Row, *, op: int = PUT, **more: Any) -> bytes:
    stall, price, at = row
    values = {"stall": stall, "price": price}
    columns = [values[column.name] for column in schema.columns]
    return RecordCodec(schema).encode_value(
        op=op, time_us=round(at.timestamp() * 1e6), ingested_us=0, row=columns, **more
    )


def dear_ones(schema: RecordSchema, rows: list[Row], first: int) -> list[tuple[bytes | None, bytes, int]]:
    """Return what a job sends for rows, of which the first has a number: the dear ones, and some of them twice."""
    messages: list[tuple[bytes | None, bytes, int]] = []
    for number, row in enumerate(rows, start=first):
        if row[1] is not None and not row[1] <= 50:
            key = RecordCodec(schema).encode_key([row[0]]) or b""
            value = record(schema, row, record_id=position_id(number, 0))
            messages += [(key, value, partition_of(key, PARTITIONS))] * (1 + number % 2)
    return messages


def expected_of_sales(rows: list[Row]) -> dict[int, Counts]:
    prices = [(stall, price) for stall, price, _ in rows if price is not None and price == price]  # noqa: PLR0124 (NaN)
    meant = [stall for stall, price in prices if price > 1]
    return {
        0: Counts(len(prices), sum(not 0 <= price <= 100 for _, price in prices)),
        1: Counts(len(meant), sum(re.search("^[a-z]+$", stall) is None for stall in meant)),
        2: Counts(len(rows), len(rows) - len(prices)),
    }


@pytest.mark.spec("connectors:10:6", "featuresets:11:4")
@pytest.mark.parametrize(
    "revised",
    [True, pytest.param(False, marks=pytest.mark.full(reason="of these two, rows that are revised need more"))],
)
def test_each_row_is_counted_once_whenever_the_process_dies(
    kafka: str, store: QualityStore, tmp_path: Path, *, revised: bool
) -> None:
    chance = random.Random(1 + revised)
    checks = planned(kafka)
    # The plan of a job says whether it revises its records; this one does both.
    assert not checks["Twice"].topic.revised
    checks["Twice"] = replace(checks["Twice"], topic=replace(checks["Twice"].topic, revised=revised))
    sales, twice, dear = checks["Sales"], checks["Twice"], checks["Dear"]
    dying = Dying(store._engine, chance)

    def follower() -> QualityFollower:
        made = QualityFollower(kafka, dying, folder=tmp_path, seconds=0.0, kept_s=30 * 86_400)
        made.follow({check.check_id: check for check in (sales, twice, dear)})
        return made

    def has_all() -> bool:
        topics = TopicEnds(kafka).ends({plan.topic.name for plan in (sales, twice, dear)})
        return all(is_behind(store.positions(plan.check_id), topics[plan.topic.name]) for plan in (sales, twice, dear))

    rows: list[Row] = []
    following = follower()
    last: dict[bytes, tuple[bytes, bool, Row]] = {}
    counted = {"twice": Counts()}
    put_twice: list[Row] = []
    for _ in range(6):
        new = some_rows(chance, 40)
        rows += new
        parts = [record(sales.topic.schema, row) for row in new]
        sent(kafka, sales.topic.name, [(None, block_of(parts[:25]), 0), *((None, part, 1) for part in parts[25:])])
        sent(kafka, dear.topic.name, dear_ones(dear.topic.schema, new, len(rows)))
        # The job sends some records again, and may revise others.
        repeated: list[tuple[bytes | None, bytes, int]] = []
        for row in some_rows(chance, 30):
            identity, rev = position_id(chance.randrange(40), 0), bytes([chance.randrange(3)])
            op, partition = chance.choice([PUT, PUT, PUT, RETRACT]), identity[7] % PARTITIONS
            if not revised:
                # All records of an identity are the same one. Without a key, they may come to any partition.
                rev, op, partition = b"", PUT, chance.randrange(PARTITIONS)
                row = last[identity][2] if identity in last else row  # noqa: PLW2901
            repeated.append((None, record(twice.topic.schema, row, op=op, record_id=identity, rev=rev), partition))
            known = last.get(identity)
            if known is not None and (rev, op == PUT) <= known[:2]:
                continue
            last[identity] = rev, op == PUT, row
            is_new = known is None or not known[1] or repr(known[2]) != repr(row)
            price = row[1]
            if op == PUT and is_new:
                put_twice.append(row)
            if op == PUT and is_new and price is not None and price == price:  # noqa: PLR0124 (NaN)
                counted["twice"] += Counts(1, int(not 0 <= price <= 100))
        sent(kafka, twice.topic.name, repeated)
        deadline = deadline_in(60)
        try:
            while not has_all():
                assert time.monotonic() < deadline, "the rows aren't counted"
                following.step()
        except DiedError:
            following.close()
            if chance.random() < 0.3:
                for path in (tmp_path / FOLDER).iterdir():
                    path.unlink()
            following = follower()
    dying.deaths = 0
    deadline = deadline_in(60)
    while not has_all():
        assert time.monotonic() < deadline, "the rows aren't counted"
        following.step()
    following.close()
    totals = {
        check: {n: t.counts for (i, n), t in store.totals().items() if i == plan.check_id}
        for check, plan in checks.items()
    }
    assert totals["Sales"] == expected_of_sales(rows)
    assert totals["Twice"] == {0: counted["twice"]}
    dears = [price for _, price, _ in rows if price is not None and price > 50]
    assert totals["Dear"] == {0: Counts(len(dears), sum(price > 100 for price in dears))}
    # All event times are of the last hours, so the windows have all rows.
    windows = store.windows([sales.check_id], 24)[sales.check_id]
    state = states_of(sales, windows, store.totals())[0]
    assert state.day == state.total == expected_of_sales(rows)[0]
    assert state.status is Status.VIOLATED
    profiles = ProfileStore(store._engine, Subject.DATASETS)
    stored = {name: by_hour(profiles, checks[name].check_id) for name in ("Sales", "Twice", "Dear")}
    assert stored["Sales"] == profiled_plainly(rows)
    # Each record that puts another row counts, also if a later one revises it.
    assert stored["Twice"] == profiled_plainly(put_twice)
    # The stall is the key of this dataset.
    # NaN is above all numbers.
    of_prices = profiled_plainly([row for row in rows if row[1] is not None and not row[1] <= 50])
    assert stored["Dear"] == {key: found for key, found in of_prices.items() if key[0] == "price"}


Profiled = tuple[int, int, int, float, float | None, float | None, list[tuple[str, int]]]


def by_hour(profiles: ProfileStore, check_id: str) -> dict[tuple[str, datetime], Profiled]:
    """Return the exact parts of the profiles of stalls and prices by hour."""
    found = {}
    for hour in {at.replace(minute=0, second=0) for at in (NOW - timedelta(minutes=n) for n in range(61))}:
        window = profiles.window(check_id, hour, hour + timedelta(hours=1), ["stall", "price"])
        for (name, _), one in window.items():
            moments = one.moments.sum() if one.moments.count else 0.0
            found[name, hour] = one.rows, one.nulls, one.nans, moments, one.least, one.greatest, sorted(one.top())
    return found


def profiled_plainly(rows: list[Row]) -> dict[tuple[str, datetime], Profiled]:
    """Return the same from the rows, by plain Python."""
    found: dict[tuple[str, datetime], Profiled] = {}
    for hour in {at.replace(minute=0, second=0) for _, _, at in rows}:
        own = [(stall, price) for stall, price, at in rows if at.replace(minute=0, second=0) == hour]
        stalls = Counter(stall for stall, _ in own)
        prices = [price for _, price in own if price is not None and not math.isnan(price)]
        nans = sum(price is not None and math.isnan(price) for _, price in own)
        found["stall", hour] = len(own), 0, 0, 0.0, None, None, sorted(stalls.items())
        nulls = sum(price is None for _, price in own)
        least, greatest = (min(prices), max(prices)) if prices else (None, None)
        found["price", hour] = len(own), nulls, nans, math.fsum(prices), least, greatest, []
    return found


def test_a_record_that_comes_again_to_another_partition_counts_once_after_the_loss_of_the_file(
    kafka: str, store: QualityStore, tmp_path: Path
) -> None:
    twice = planned(kafka)["Twice"]
    row: Row = ("apples", 5.0, NOW)

    def block(first: int, count: int) -> bytes:
        ids = [position_id(number, 0) for number in range(first, first + count)]
        return block_of([record(twice.topic.schema, row, record_id=one) for one in ids])

    def follow() -> Counts:
        """Count all rows by a new process."""
        following = QualityFollower(kafka, store, folder=tmp_path, seconds=0.0, kept_s=30 * 86_400)
        following.follow({twice.check_id: twice})
        deadline = deadline_in(60)
        ends = TopicEnds(kafka).ends({twice.topic.name})[twice.topic.name]
        while not is_behind(store.positions(twice.check_id), ends):
            assert time.monotonic() < deadline, "the rows aren't counted"
            following.step()
        following.close()
        return store.totals()[twice.check_id, 0].counts

    # A process reads 10,000 records at once, so it comes to the end of the first partition after that of the second.
    first = [(None, block(number, 100), 0) for number in range(0, 30_000, 100)]
    sent(kafka, twice.topic.name, [*first, (None, block(30_000, 1), 1)])
    assert follow() == Counts(30_001, 0)
    for path in (tmp_path / FOLDER).iterdir():
        path.unlink()
    sent(kafka, twice.topic.name, [(None, block(29_999, 3), 1)])
    assert follow() == Counts(30_002, 0)
