"""Tests that jobs with joins of tables, and of a table with itself, have the output of the in-process engine."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.graph.operators import (
    Changelog,
    Dedup,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
)
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import Case
from tests.integration.spark.runs import Run, run_all
from tests.tiers import selected

ARRIVALS = model.traffic(seed=5, count=240)
CLICK, USER = Input(dataset="Clicks"), Input(dataset="Users")
# A table whose join key differs between versions.
CARTS = Latest(of=Select(of=CLICK, columns=("user", "number")), keys=("number",))
# Other names for the columns of users, because both sides of a join can't have the same columns.
PAIRS = (("town", "own_town"), ("labels", "own_labels"))
LEVELS = Rename(of=USER, pairs=PAIRS)


def _joined(left: Operator, on: str, *fields: str, how: JoinKind = JoinKind.INNER) -> Join:
    return Join(
        left=left,
        right="Users",
        how=how,
        left_on=(on,),
        right_on=("user",),
        within_low_us=None,
        within_high_us=0,
        fields=fields,
    )


# The versions of these tables may be corrected.
FIRST_CARTS = First(of=Select(of=CLICK, columns=("user", "number")), keys=("number",))
LAST_CARTS = Latest(of=Dedup(of=Select(of=CLICK, columns=("user", "number")), by=("user",)), keys=("number",))
# The join key is a column of another join of tables.
SUPERIORS = _joined(Rename(of=USER, pairs=(*PAIRS, ("level", "own_level"))), "own_level", "level")
CHANGES = Changelog(of=LEVELS, column="gone", marks_inserts=False)
ALL = [
    Case("CartsOfUsers", _joined(CARTS, "user", "town")),
    Case("CartsOfAll", _joined(CARTS, "user", "town", "since", how=JoinKind.LEFT)),
    Case("UsersByKey", _joined(LEVELS, "user", "town", "labels")),
    Case("UsersByLevel", _joined(LEVELS, "level", "town", how=JoinKind.LEFT)),
    Case("ChangesOfCarts", Changelog(of=_joined(CARTS, "user", "town"), column="gone", marks_inserts=False)),
    Case("FirstCartsOfUsers", _joined(FIRST_CARTS, "user", "town")),
    Case("LastCartsOfUsers", _joined(LAST_CARTS, "user", "town", how=JoinKind.LEFT)),
    Case("CartsTwice", _joined(_joined(CARTS, "user", "town"), "user", "labels", how=JoinKind.LEFT)),
    Case("Superiors", _joined(SUPERIORS, "level", "town", how=JoinKind.LEFT)),
    Case("ChangesWithUsers", _joined(CHANGES, "user", "town")),
]


# These cases always run. The others are variants of them, and each costs a job with three seconds of processor time.
OFTEN = {"CartsOfAll", "ChangesOfCarts", "FirstCartsOfUsers", "Superiors"}
VARIANT = pytest.mark.full(reason="a variant of the joins that each run tests; a job more beside theirs")
PARAMS = [pytest.param(case, id=case.name, marks=() if case.name in OFTEN else VARIANT) for case in ALL]


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Run the jobs that are tested while rows come in, late ones among them, in small lots."""
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    cases = [case for case in ALL if case in selected(request, "case")]
    return run_all(cases, ARRIVALS, broker=broker, spark=spark, folder=folder, suffix="joins")


@pytest.mark.parametrize("case", PARAMS)
def test_a_join_gives_what_the_in_process_engine_gives(case: Case, run: Run) -> None:
    run.check(case)
