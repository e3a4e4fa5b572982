"""Tests that jobs with changelog, dedup and first, alone and in chains, have the output of the in-process engine."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.dtypes.types import INT
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.operators import (
    Changelog,
    Dedup,
    Filter,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Select,
)
from caraway.graph.windows import HoppingWindow, SessionWindow
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import Arrival, Case
from tests.integration.spark.runs import Run, run_all

SECOND = 1_000_000
# Windows have whole seconds, so a step of the model's time is half a second here.
ARRIVALS = {
    name: [Arrival(a.row, a.time_us * SECOND // 2, delete=a.delete) for a in arrivals]
    for name, arrivals in model.traffic(seed=11, count=300).items()
}
# Users who click twice, in seconds that are a session's gap apart: 1.500001 s, 1.999999 s and 2 s after each other.
CLOSE = {201: 1_500_001, 202: 1_999_999, 203: 2_000_000}
for user, distance_us in CLOSE.items():
    first_us = (1_000 + user) * SECOND + SECOND - (distance_us - SECOND)
    clicks = [Arrival({**ARRIVALS["Clicks"][0].row, "user": user}, first_us + us) for us in (0, distance_us)]
    ARRIVALS["Clicks"] += clicks
    ARRIVALS["Users"].append(Arrival({"user": user, "town": f"of {user}", "level": 0, "labels": []}, 0))
CLICK, USER = Input(dataset="Clicks"), Input(dataset="Users")
SLIM = Select(of=CLICK, columns=("user", "number"))
CHANGES = Changelog(of=USER, column="gone", marks_inserts=False)


def _greater(of: Operator, column: str, least: int) -> Operator:
    return Filter(of=of, predicate=Binary(op=BinaryOp.GT, left=Ref(name=column), right=Literal(value=least, dtype=INT)))


def _joined(of: Operator, *fields: str) -> Join:
    return Join(
        left=of,
        right="Users",
        how=JoinKind.INNER,
        left_on=("user",),
        right_on=("user",),
        within_low_us=None,
        within_high_us=0,
        fields=fields,
    )


def _dedup(of: Operator, *by: str, window: HoppingWindow | SessionWindow | None = None) -> Dedup:
    return Dedup(of=of, by=by, window=window)


TUMBLING = HoppingWindow(length_us=5 * SECOND, stride_us=5 * SECOND)
SESSION = SessionWindow(gap_us=2 * SECOND)
ALL = [
    Case("Changes", CHANGES),
    Case("Inserts", Changelog(of=_greater(USER, "level", 0), column="new", marks_inserts=True)),
    Case("First", First(of=CLICK, keys=("user",))),
    Case("FirstByFloat", First(of=CLICK, keys=("price", "number"))),
    Case("Instant", _dedup(CLICK, "user")),
    Case("Tumbling", _dedup(CLICK, "user", "number", window=TUMBLING)),
    Case("Session", _dedup(CLICK, "note", window=SESSION)),
    Case("DedupOfJoin", _dedup(_joined(SLIM, "town"), "user", window=TUMBLING)),
    Case("DedupByJoined", _dedup(_joined(SLIM, "town"), "town", window=SESSION)),
    Case("JoinOfDedup", _joined(_dedup(SLIM, "user", window=TUMBLING), "level")),
    Case("FirstOfJoin", First(of=_joined(SLIM, "town"), keys=("town",))),
    Case("ChangesOfLatest", Changelog(of=Latest(of=CLICK, keys=("user",)), column="gone", marks_inserts=False)),
    Case("ChangesOfFirst", Changelog(of=First(of=CLICK, keys=("user", "number")), column="new", marks_inserts=True)),
    Case("LatestOfChanges", Latest(of=CHANGES, keys=("town",))),
    Case("DedupOfChanges", _dedup(CHANGES, "level", window=TUMBLING)),
]
# These cases always run. The others are variants of them, and run a few at a time, each with a job of its own.
OFTEN = ("Changes", "Tumbling", "DedupByJoined", "FirstOfJoin", "ChangesOfLatest")
VARIANT = pytest.mark.full(reason="a variant of the steps that each run tests; a job more for each")
TOGETHER = 5
RARE = [case for case in ALL if case.name not in OFTEN]
GROUPS = [
    [case for case in ALL if case.name in OFTEN],
    *(RARE[start : start + TOGETHER] for start in range(0, len(RARE), TOGETHER)),
]


@pytest.fixture(scope="module")
def run_of(broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    """Run the jobs of a group, once, while rows come in, late ones among them, in small lots."""
    folder: Path = tmp_path_factory.mktemp("checkpoints")

    @cache
    def run_of(group: int) -> Run:
        suffix = f"adjacent-{group}"
        return run_all(GROUPS[group], ARRIVALS, broker=broker, spark=spark, folder=folder, suffix=suffix)

    return run_of


# The case is no parameter of the fixture, since pytest would set that up anew for each case.
@pytest.mark.parametrize(
    ("group", "case"),
    [
        pytest.param(group, case, id=case.name, marks=() if case.name in OFTEN else VARIANT)
        for group, cases in enumerate(GROUPS)
        for case in cases
    ],
)
def test_a_job_gives_what_the_in_process_engine_gives(group: int, case: Case, run_of: Callable[[int], Run]) -> None:
    run = run_of(group)
    run.check(case)
    assert run.jobs[case.name].output.revised


def test_sessions_of_duplicates_count_every_microsecond_between_rows(run_of: Callable[[int], Run]) -> None:
    (rows, _) = run_of(0).found["DedupByJoined"]
    users = [dict(row)["user"] for _, _, row in rows]
    assert {user: users.count(user) for user in CLOSE} == {201: 1, 202: 1, 203: 2}
