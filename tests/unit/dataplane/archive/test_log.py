"""Tests of kept queries: the chosen rows, as they were answered, in records that fit Kafka; lost rows are counted."""

import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from typing_extensions import override

from caraway.compute.query.batch import Batch
from caraway.compute.query.executor import CompiledPlan
from caraway.dataplane.archive.served_log import CLOSE_S, MAX_RECORD_BYTES, SERVED, Origin, Served, ServedLog, records
from caraway.dataplane.topics.producer import TopicItem, TopicWriter
from caraway.errors import UnavailableError
from tests.effort import examples
from tests.unit.compute.query.garden import DictReader, engine

PLAN = engine(DictReader({})).plan(["Tap.pot", "Tap.raw"], ["State.species", "State.score", "Tap.raw"])


def computed(rows: int, raw: str = "x", at: int | list[int] = 7) -> Batch:
    return PLAN.evaluate({"Tap.pot": list(range(rows)), "Tap.raw": [raw] * rows}, at)


def origin(workflow: str = "w", rate: float = 1.0) -> Origin:
    return Origin(branch="main", commit="c1", workflow=workflow, rate=rate)


class Held(TopicWriter):
    """A writer that holds records until the test sets their outcome."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[TopicItem], Future[None]]] = []
        self.called = threading.Semaphore(0)

    @override
    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        assert topic == SERVED
        future: Future[None] = Future()
        self.sent.append((list(items), future))
        self.called.release()
        return future

    def wait(self) -> tuple[list[dict[str, Any]], "Future[None]"]:
        assert self.called.acquire(timeout=60)
        items, future = self.sent[-1]
        return [orjson.loads(value) for _, value, _ in items], future


@pytest.fixture
def writer() -> Held:
    return Held()


def counted(workflow: str, outcome: str) -> float:
    found = REGISTRY.get_sample_value("caraway_served_rows_counter_total", {"workflow": workflow, "outcome": outcome})
    return found or 0.0


def test_a_record_holds_inputs_and_outputs_as_they_were_answered(writer: Held) -> None:
    log = ServedLog(writer)
    log.start()
    batch = computed(2, "y")
    log.keep(PLAN, batch, origin("one"))
    (record,), future = writer.wait()
    assert {name: record[name] for name in ("branch", "commit", "workflow", "rows", "at_us")} == {
        "branch": "main",
        "commit": "c1",
        "workflow": "one",
        "rows": [0, 1],
        "at_us": 7,
    }
    assert record["inputs"] == {"Tap.pot": [0, 1], "Tap.raw": ["y", "y"]}
    assert record["outputs"] == PLAN.answer(batch)
    assert counted("one", "kept") == 0
    future.set_result(None)
    assert (counted("one", "kept"), counted("one", "lost")) == (2, 0)
    log.stop(CLOSE_S)


def test_what_kafka_does_not_take_is_counted_as_lost(writer: Held) -> None:
    log = ServedLog(writer)
    log.start()
    log.keep(PLAN, computed(3), origin("two"))
    _, future = writer.wait()
    future.set_exception(UnavailableError("away"))
    assert (counted("two", "kept"), counted("two", "lost")) == (0, 3)
    log.stop(CLOSE_S)


def test_what_waits_is_bounded(writer: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caraway.dataplane.archive.served_log.MAX_ROWS_WAITING", 10)
    monkeypatch.setattr("caraway.dataplane.archive.served_log.MAX_BYTES_WAITING", 1500)
    log = ServedLog(writer)
    for _ in range(5):
        log.keep(PLAN, computed(4), origin("three"))
    assert counted("three", "lost") == 12
    log.start()
    writer.wait()
    # The rows of the first two wait, or their bytes are on the way: either way there is no room for so many more.
    log.keep(PLAN, computed(40), origin("four"))
    log.stop(CLOSE_S)
    assert sum(len(items) for items, _ in writer.sent) == 2
    assert counted("four", "lost") == 40


def test_closing_sends_what_waits(writer: Held) -> None:
    log = ServedLog(writer)
    for _ in range(3):
        log.keep(PLAN, computed(1), origin("five"))
    log.start()
    log.stop(CLOSE_S)
    assert sum(len(items) for items, _ in writer.sent) == 3


def test_a_share_of_the_rows_is_kept_whatever_their_requests(writer: Held) -> None:
    log = ServedLog(writer, chance=random.Random(1).random)
    for size in (1, 3, 500, 1500):
        log.keep(PLAN, computed(size), origin("six", 0.25))
    log.keep(PLAN, computed(100), origin("six", 0.0))
    log.start()
    log.stop(CLOSE_S)
    kept = [orjson.loads(value) for items, _ in writer.sent for _, value, _ in items]
    assert 400 < sum(len(record["rows"]) for record in kept) < 600
    for record in kept:
        assert record["inputs"]["Tap.pot"] == record["rows"]


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 30), st.sampled_from([1, 10_000, 200_000]), st.data())
def test_large_queries_are_cut_and_nothing_is_lost_by_it(rows: int, size: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, rows - 1), unique=True).map(sorted))
    batch = computed(rows, "r" * size, list(range(rows)))
    made = records(Served(PLAN, batch, origin(), 1), chosen)
    read = [orjson.loads(value) for _, value in made]
    assert [row for record in read for row in record["rows"]] == chosen
    assert [at for record in read for at in record["at_us"]] == chosen
    assert [pot for record in read for pot in record["inputs"]["Tap.pot"]] == chosen
    assert [count for count, _ in made] == [len(record["rows"]) for record in read]
    assert all(len(value) <= MAX_RECORD_BYTES for count, value in made if count > 1)
    assert len({record["query"] for record in read}) == min(1, len(chosen))


def test_values_that_json_does_not_have_are_kept_as_text(writer: Held) -> None:
    plan: CompiledPlan = engine(DictReader({})).plan(["Tap.pot", "Unknown.thing"], ["State.score"], foreign_inputs=True)
    log = ServedLog(writer)
    log.keep(plan, plan.evaluate({"Tap.pot": [1], "Unknown.thing": [b"x"]}), origin("seven"))
    log.start()
    (record,), _ = writer.wait()
    assert record["inputs"]["Unknown.thing"] == ["b'x'"]
    log.stop(CLOSE_S)
