"""Records on a topic, and the answers that an index must return for them."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from caraway.dataplane.index.feeding.worker import IndexStatus, IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.plan.model import IndexKind, IndexPlan
from tests.timeouts import deadline_in
from tests.unit.dataplane.index.naive import CODEC, SECOND, NaiveIndex, Sent, aggregate, index_plan

KEYS = [f"key{n}" for n in range(20)]
AGGREGATES = (
    aggregate(AggregateFunction.COUNT, None, None),
    aggregate(AggregateFunction.SUM, "x", 3600 * SECOND),
    aggregate(AggregateFunction.MAX, "n", None, -1),
)
PLANS = (
    index_plan(IndexKind.AGGREGATE, revised=True, aggregates=AGGREGATES, asset=b"flow---1"),
    index_plan(IndexKind.VERSIONS, revised=True, asset=b"flow---2"),
)
COLUMNS = {
    IndexKind.AGGREGATE: ["k", *(spec.into for spec in AGGREGATES), "t"],
    IndexKind.VERSIONS: ["k", "n", "x", "d", "t"],
}
TIMEOUT_S = 120.0
ROOT = Path(__file__).parents[3]


@dataclass
class Flow:
    """A writer of records to a topic that remembers them."""

    writer: TopicWriter
    topic: str
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.sent: list[Sent] = []
        self.ids = 0

    def make(self, count: int) -> list[Sent]:
        """Return new records: most have new ids, some are retractions, some revise earlier ones of the same key."""
        made: list[Sent] = []
        for _ in range(count):
            known = self.random.random() < 0.1 and bool(self.ids)
            number = self.random.randrange(self.ids) if known else self.ids
            self.ids = max(self.ids, number + 1)
            rev = len(self.sent) + len(made)
            op = RETRACT if self.random.random() < 0.05 else PUT
            row = (self.random.randrange(1000), self.random.gauss(0, 9), None) if op == PUT else None
            time_us = number * SECOND // 10 + self.random.randrange(60 * SECOND)
            made.append(Sent(KEYS[number % len(KEYS)], position_id(number, 0), rev.to_bytes(4), op, time_us, row))
        return made

    def send(self, count: int) -> None:
        """Write new records; return when they are durable."""
        made = self.make(count)
        items = [(*record.message(0)[:2], None) for record in made]
        futures = [
            self.writer.write(self.topic, items[start : start + 500])  # type: ignore[arg-type]
            for start in range(0, count, 500)
        ]
        for future in futures:
            future.result(TIMEOUT_S)
        self.sent += made

    def check(self, reader: IndexReader, plans: Sequence[IndexPlan] = PLANS, *, since_us: int = 0) -> None:
        """Compare the index with a dictionary, at several times from `since_us` on."""
        end = self.ids * SECOND // 10
        for plan in plans:
            naive = NaiveIndex(replace(plan, topic=self.topic))
            for record in self.sent:
                naive.apply(record)
            columns = COLUMNS[plan.kind]
            for at_us in (0, end // 3, end // 2, end, end + 3600 * SECOND):
                if at_us < since_us:
                    continue
                keys = [CODEC.encode_key([key]) or b"" for key in KEYS]
                got, found = reader.read(plan, keys, at_us, columns)
                for place, key in enumerate(KEYS):
                    row = [column[place] for column in got]
                    assert (row, found[place]) == naive.read(key, at_us, columns), (plan.kind, key, at_us)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` holds."""
    deadline = deadline_in(TIMEOUT_S)
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def wait_until_caught_up(worker: IndexWorker, topic: str, records: int, indexes: int = len(PLANS)) -> list[IndexStatus]:
    """Wait until all indexes of a topic have read it, and return their progress."""

    def level() -> bool:
        statuses = [status for status in worker.positions() if status.topic == topic]
        return len(statuses) == indexes and all(sum(s.offsets.values()) >= records for s in statuses)

    wait_for(level, f"{records} records of {topic}: {worker.positions()}")
    return [status for status in worker.positions() if status.topic == topic]


@contextmanager
def killed_when_it_gets_further(*arguments: str) -> Iterator[None]:
    """Start `following_process`, and kill it as soon as it has got further after the block, so in the middle of more.

    The block must give it work.
    """
    command = [sys.executable, "-m", "tests.integration.index.following_process", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"following\n"
        yield
        assert process.stdout.readline()
        process.kill()
