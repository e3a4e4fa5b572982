"""The figures that a query reports, computed from Spark's progress."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from caraway.dataplane.streams.engine.lag import Observer
from caraway.dataplane.streams.engine.losses import noted
from caraway.dataplane.streams.engine.phases import LEFT_BEHIND_RECORDS, Phase
from caraway.dataplane.streams.engine.slots import SlotBook
from caraway.dataplane.streams.engine.spark_query import LOOK_SECONDS, SparkQuery, checkpoint_figures
from caraway.dataplane.streams.spark.live import RealTimeRows
from caraway.dataplane.topics.positions import LedEnd
from caraway.dataplane.topics.truncation import Reached
from tests.unit.dataplane.streams.engine.test_jobs import plan

TOLD: dict[str, Any] = {
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 7,
    "numInputRows": 90,
    "processedRowsPerSecond": 9.0,
    "durationMs": {"triggerExecution": 10_300, "walCommit": 40, "commitOffsets": 50, "addBatch": 10_100},
    "stateOperators": [
        {
            "memoryUsedBytes": 100,
            "commitTimeMs": 70,
            "customMetrics": {"rocksdbSstFileSize": 1000},
        },
        {"memoryUsedBytes": 10, "commitTimeMs": 30},
    ],
    "sources": [{"endOffset": {"d": {"0": 60, "1": 30}}}],
}


@dataclass
class Progress:
    json: str


@dataclass
class Running:
    isActive: bool = True  # noqa: N815 (Spark's name)
    lastProgress: Progress | None = None  # noqa: N815 (Spark's name)
    runId: str = "run"  # noqa: N815 (Spark's name)
    error: str | None = None

    def exception(self) -> str | None:
        return self.error


@dataclass
class Letters:
    value: int = 3


@dataclass
class Rig:
    now: float = 100.0
    end: int = 0
    size: float = 1.0
    live: RealTimeRows = RealTimeRows(batch=0, rows=0)  # noqa: RUF009 (frozen)
    running: Running = field(default_factory=Running)

    def query(self, phase: Phase, checkpoint: Path) -> SparkQuery:
        self.observer = Observer(
            lambda _: {"d": {0: self.end}},
            lambda: {"run": self.live},
            lambda topics: dict.fromkeys(topics, self.size),
            lambda: self.now,
            lambda _: {"d": {0: LedEnd(self.end, 4)}},
        )
        self.observer.watch(plan("a").inputs)
        return SparkQuery(
            query=cast("Any", self.running),
            plan=plan("a"),
            phase=phase,
            checkpoint=checkpoint,
            interval_ms=10_000,
            letters=cast("Any", Letters()),
            observer=self.observer,
            slots=SlotBook(lambda: 0),
            clock=lambda: self.now,
        )

    def look(self, *, end: int, batch: int = 0, live: int = 0) -> None:
        self.end, self.live, self.now = end, RealTimeRows(batch=batch, rows=live), self.now + LOOK_SECONDS
        self.observer.look()


def test_the_pause_of_a_checkpoint_is_the_time_of_a_batch_beyond_its_interval() -> None:
    figures = checkpoint_figures(TOLD, 10_000)
    assert figures["checkpoint_ms"] == 300
    assert figures["state_bytes"] == 1110
    assert (figures["batch"], figures["rows"]) == (7, 90)


def test_the_pause_of_a_batch_that_ends_with_its_input_is_the_time_to_save_it() -> None:
    assert checkpoint_figures(TOLD, 0)["checkpoint_ms"] == 40 + 50 + 70


def test_position_rate_and_lag_go_on_between_checkpoints(tmp_path: Path) -> None:
    rig = Rig()
    query = rig.query(Phase.LIVE, tmp_path)
    rig.running.lastProgress = Progress(json.dumps(TOLD))
    rig.look(end=100, batch=8, live=10)
    rig.look(end=200, batch=8, live=60)
    first = query.progress()
    assert (first["phase"], first["dead_letters"], first["lag_records"], first["lag_seconds"]) == ("live", 3, 0, 0.0)
    assert query.progress() is first, "not looked at again so soon"
    rig.look(end=300, batch=8, live=60)
    second = query.progress()
    assert second["rows_per_second"] == (60 - 10) / LOOK_SECONDS
    rig.look(end=300, batch=8, live=60)
    third = query.progress()
    assert (third["lag_records"], third["lag_seconds"]) == (200 - (90 + 60), LOOK_SECONDS * 3)


def test_a_checkpoint_counts_nothing_twice_and_takes_nothing_back(tmp_path: Path) -> None:
    rig = Rig()
    query = rig.query(Phase.LIVE, tmp_path)
    rig.running.lastProgress = Progress(json.dumps(TOLD))
    for _ in range(3):
        rig.look(end=200, batch=8, live=30)
    assert query.progress()["lag_records"] == 200 - (90 + 30)
    # The batch has ended; its rows appear in the offsets a moment later.
    rig.look(end=200, batch=9, live=0)
    rig.look(end=200, batch=9, live=0)
    assert query.progress()["lag_records"] == 200 - (90 + 30)
    ended = {**TOLD, "batchId": 8, "sources": [{"endOffset": {"d": {"0": 80, "1": 50}}}]}
    rig.running.lastProgress = Progress(json.dumps(ended))
    rig.look(end=200, batch=9, live=5)
    assert query.progress()["lag_records"] == 200 - 130
    rig.look(end=200, batch=9, live=5)
    assert query.progress()["lag_records"] == 200 - (130 + 5)


def test_a_query_notes_the_epoch_in_which_it_reached_the_position_of_its_progress(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    rig = Rig()
    query = rig.query(Phase.LIVE, tmp_path)
    rig.running.lastProgress = Progress(json.dumps(TOLD))
    for _ in range(2):
        rig.look(end=100)
    query.progress()
    assert noted(tmp_path) == {"d": Reached({0: 60}, {0: 4})}


def test_a_query_without_progress_stands_where_its_checkpoint_does(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"d":{"0":25}}')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    rig = Rig()
    query = rig.query(Phase.LIVE, tmp_path)
    for _ in range(2):
        rig.look(end=40, batch=1, live=5)
    assert query.progress()["lag_records"] == 40 - 30


def test_a_backfill_is_over_when_spark_ends_it(tmp_path: Path) -> None:
    rig = Rig()
    query = rig.query(Phase.BACKFILL, tmp_path)
    assert not query.is_over()
    rig.running.isActive = False
    assert query.is_over()
    assert query.failure() is None
    rig.running.error = "broken"
    assert query.failure() == "broken"


def test_a_live_query_never_just_ends(tmp_path: Path) -> None:
    rig = Rig()
    query = rig.query(Phase.LIVE, tmp_path)
    rig.running.isActive = False
    assert query.failure() == "the query has ended without an error"


def test_a_live_query_that_is_left_behind_is_over(tmp_path: Path) -> None:
    rig = Rig()
    query = rig.query(Phase.LIVE, tmp_path)
    rig.look(end=LEFT_BEHIND_RECORDS + 1)
    assert not query.is_over(), "nothing is known before the first look"
    query.progress()
    assert query.is_over()


def test_lag_and_rate_count_the_records_in_messages(tmp_path: Path) -> None:
    rig = Rig(size=50.0)
    query = rig.query(Phase.LIVE, tmp_path)
    for end in (0, 10, 10):
        rig.look(end=end)
    assert query.progress()["lag_records"] == 0
    for end in (14, 14, 14):
        rig.look(end=end, live=12)
    progress = query.progress()
    assert progress["lag_records"] == 2 * 50
    assert progress["rows_per_second"] == 12 * 50 / (3 * LOOK_SECONDS)
