"""The counts of expectations in a run: by the product's code in a process that is killed, and by plain Python.

The profiles of datasets are made by the same process; `profiling` has them in plain Python.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Message

from caraway.compute.profiles.columns import ColumnProfile
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.positions import TopicEnds, is_behind
from caraway.errors import UnavailableError
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.quality.follower import FOLDER, QualityFollower
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.state.database import connect
from tests.messages import positions_of
from tests.parity.comparing import Difference
from tests.parity.plain_checks import outcome
from tests.parity.profiling import differing_profiles, stored_profiles
from tests.parity.traffic import Part, Traffic
from tests.timeouts import deadline_in

COUNTED_S = 120.0
POLL_S = 0.1
#: The most kills of a run, the chance of one at each look, and the chance that the files of a process are lost with it.
KILLS, CHANCE, LOST = 3, 0.05, 0.3
KEPT_S = 30 * 86_400.0

# How many rows an expectation looked at, and how many of them failed.
Counted = tuple[int, int]
Row = Mapping[str, Any]


def count(servers: str, url: str, folder: Path, checks: Mapping[str, CheckPlan]) -> None:
    """Count rows as the quality process does, until this process is killed."""
    follower = QualityFollower(servers, QualityStore(connect(url)), folder=folder, seconds=0.0, kept_s=KEPT_S)
    follower.follow(checks)
    while True:
        try:
            follower.step()
        except UnavailableError:
            time.sleep(POLL_S)


class CountingProcess:
    """Counts the rows of a run's checks in a process of its own, which may be killed at any time."""

    def __init__(self, servers: str, url: str, folder: Path, parts: Sequence[Part], *, rng: Random) -> None:
        """Start the process.

        Args:
            servers: The broker.
            url: A database with Caraway's tables.
            folder: A folder of its own.
            parts: The cases, whose plans have the checks.
            rng: Decides when the process is killed.
        """
        self._checks = {check.check_id: check for part in parts for check in part.plan.checks}
        self._arguments = (servers, url, folder, self._checks)
        self._engine = connect(url)
        self._store, self._ends = QualityStore(self._engine), TopicEnds(servers)
        self._folder, self._rng = folder, rng
        self.kills = 0
        self._process: BaseProcess | None = self._started() if self._checks else None

    def kill_by_chance(self) -> None:
        """Kill the process, if it has counted something and there were few kills yet."""
        if self.kills < KILLS and self._rng.random() < CHANCE and self._has_counted():
            self.kill()

    def kill(self) -> None:
        """Kill the process and start another one, which may lack the files of the first."""
        if self._process is None:
            return
        self.kills += 1
        self._end()
        if self._rng.random() < LOST:
            for path in (self._folder / FOLDER).glob("*.db*"):
                path.unlink()
        self._process = self._started()

    def settle(self) -> None:
        """Wait until all rows that are on the topics now are counted, and end the process."""
        if self._process is None:
            return
        ends = self._ends.ends({check.topic.name for check in self._checks.values()})
        deadline = deadline_in(COUNTED_S)
        while left := [i for i, check in self._checks.items() if not self._is_counted(i, ends[check.topic.name])]:
            assert self._process.is_alive(), "the process that counts has ended"
            if time.monotonic() > deadline:
                raise TimeoutError(f"the rows of these checks aren't counted in time: {left}")
            self.kill_by_chance()
            time.sleep(POLL_S)
        self._end()

    def positions(self, check: CheckPlan) -> Mapping[int, int]:
        """Return the offsets up to which the rows of a check are counted, by partition."""
        return self._store.positions(check.check_id)

    def counts(self, check: CheckPlan) -> dict[int, Counted]:
        """Return what was counted, by the number of the expectation."""
        totals = self._store.totals([check.check_id])
        return {number: (found.counts.evaluated, found.counts.failed) for (_, number), found in totals.items()}

    def profiles(self, check: CheckPlan) -> dict[tuple[str, int], ColumnProfile]:
        """Return the profiles of a check by field and hour, in microseconds since the epoch."""
        return stored_profiles(self._engine, check)

    def stop(self) -> None:
        """End the process, if it still runs."""
        self._end()
        self._engine.dispose()

    def _has_counted(self) -> bool:
        return any(self._store.positions(check_id) for check_id in self._checks)

    def _is_counted(self, check_id: str, ends: Mapping[int, int]) -> bool:
        return is_behind(self._store.positions(check_id), ends)

    def _started(self) -> BaseProcess:
        # Spawned: threads, of which the test has many, don't survive a fork.
        process = get_context("spawn").Process(target=count, args=self._arguments, name="counting", daemon=True)
        process.start()
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


# Plain Python --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnTopic:
    """A record on a topic: its partition, its identity and revision, and its row; None if it puts none."""

    partition: int
    identity: bytes
    rev: bytes
    time_us: int
    row: Sequence[Any] | None


def rows_of(check: CheckPlan, records: Sequence[OnTopic]) -> list[Row]:
    """Return the rows that the records of a check's topic put into its dataset, in stored form."""
    topic = check.topic.schema
    names = [column.name for column in topic.columns]
    put = _put(records, keyed=bool(topic.keys)) if check.repeats else _each(records)
    return [{**dict(zip(names, one.row or (), strict=True)), topic.timestamp: one.time_us} for one in put]


def counted_plainly(check: CheckPlan, records: Sequence[OnTopic]) -> dict[int, Counted]:
    """Return what the expectations of a check must count, by number; expectations that look at no row are left out.

    Args:
        check: The check.
        records: The records of its topic, those of a partition in their order.
    """
    rows = rows_of(check, records)
    counts: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for number, item in enumerate(check.suite.expectations):
        arguments = json.loads(item.arguments)
        for row in rows:
            passes = outcome(item.name, arguments, row)
            counts[number] += passes is not None
            failed[number] += passes is False
    return {number: (looked_at, failed[number]) for number, looked_at in counts.items() if looked_at}


def _each(records: Sequence[OnTopic]) -> Iterator[OnTopic]:
    return (record for record in records if record.row is not None)


def _put(records: Sequence[OnTopic], *, keyed: bool) -> Iterator[OnTopic]:
    """Yield the records that put a row which wasn't there: not those that came before, nor those that are outdated.

    A record without a Kafka key may come again on any partition; under another key, an identity is of another row.
    """
    newest: dict[tuple[int, bytes], OnTopic] = {}
    for record in records:
        name = record.partition if keyed else 0, record.identity
        known = newest.get(name)
        if known is not None and (record.rev, record.row is not None) <= (known.rev, known.row is not None):
            continue
        newest[name] = record
        was = None if known is None or known.row is None else (known.time_us, repr(list(known.row)))
        if record.row is not None and was != (record.time_us, repr(list(record.row))):
            yield record


def on_topic(check: CheckPlan, messages: Sequence[Message], positions: Mapping[int, int]) -> list[OnTopic]:
    """Return the records in messages of a check's topic that come before some positions."""
    codec = RecordCodec(check.topic.schema)
    found = []
    for message in sorted(messages, key=lambda message: (message.partition() or 0, message.offset() or 0)):
        partition = message.partition() or 0
        if (message.offset() or 0) >= positions.get(partition, 0):
            continue
        for position, value in positions_of(message):
            record = codec.decode_value(value)
            row = record.row if record.op == PUT else None
            found.append(OnTopic(partition, record.id or position, record.rev or b"", record.time, row))
    return found


def differing_counts(traffic: Traffic, part: Part, counting: CountingProcess) -> list[Difference]:
    """Return where the counts and profiles of a case aren't those of plain Python, once all rows are counted."""
    found: list[Difference] = []
    for check in part.plan.checks:
        records = on_topic(check, traffic.records(check.topic), counting.positions(check))
        wanted, counts = counted_plainly(check, records), counting.counts(check)
        if check.profiled:
            rows = rows_of(check, records)
            found += differing_profiles(part, check, rows, counting.profiles(check))
        found += [
            Difference(
                part,
                check.dataset.name,
                f"rows looked at and failed by {item.name} {item.arguments}",
                wanted.get(number, (0, 0)),
                counts.get(number, (0, 0)),
            )
            for number, item in enumerate(check.suite.expectations)
            if wanted.get(number, (0, 0)) != counts.get(number, (0, 0))
        ]
    return found
