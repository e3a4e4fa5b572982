"""Joins of tables, and of a table with itself, through a job: as the in-process engine has them."""

from collections.abc import Iterator
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
from tests.integration.spark.broker import Broker, astray
from tests.integration.spark.pipelines import Case
from tests.integration.spark.runs import Run, running

ARRIVALS = model.traffic(seed=5, count=240)
CLICK, USER = Input(dataset="Clicks"), Input(dataset="Users")
# A table whose join key is another one in each version.
CARTS = Latest(of=Select(of=CLICK, columns=("user", "number")), keys=("number",))
# Users by other names: a table can't be joined with what has its columns.
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


# Tables whose versions may be corrected.
FIRST_CARTS = First(of=Select(of=CLICK, columns=("user", "number")), keys=("number",))
LAST_CARTS = Latest(of=Dedup(of=Select(of=CLICK, columns=("user", "number")), by=("user",)), keys=("number",))
# By a column that a join of tables has brought.
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


@pytest.fixture(scope="module")
def run(broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run all jobs while rows come in, late ones among them, in small lots."""
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    yield from running(ALL, ARRIVALS, broker=broker, spark=spark, folder=folder, suffix="joins")


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_join_gives_what_the_in_process_engine_gives(case: Case, run: Run) -> None:
    expected = model.expected(case, ARRIVALS)
    assert expected
    job = run.jobs[case.name]
    view = model.held(job.output, model.derived(case.name, case.operator))
    # A row that leaves a key is taken back there, too.
    both = [expected, []]
    found = run.broker.receive(job.output, both, view=lambda records: [view(records), astray(records)])
    assert run.queries[case.name].exception() is None
    assert found == both
