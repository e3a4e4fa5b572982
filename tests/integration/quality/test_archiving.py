"""The table of counts: it has each hour once, as Postgres has or had it, whenever it is written and by whom."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from caraway.client import arguments
from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.suite import checks_of
from caraway.graph.plan.planner import plan_graph
from caraway.offline.monitoring.quality.archiving import FILES, PATH, CountsTable, Retention
from caraway.offline.monitoring.quality.store import Findings, QualityStore, coarse, horizon
from caraway.state.database import connect
from tests.integration.quality.stalls import definitions

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEPT = timedelta(days=3)
PLANS = {c.dataset.name: c for c in plan_graph(arguments.gather(definitions(1), ())).checks}
SALES = PLANS["Sales"]
NAMES = [check.name for check in checks_of(SALES.suite)]


@pytest.fixture
def store(postgres: str) -> Iterator[QualityStore]:
    engine = connect(postgres)
    yield QualityStore(engine)
    engine.dispose()


class Counted:
    """Counts that were added to Postgres, and what each hour has of them."""

    def __init__(self, store: QualityStore, kept: timedelta = KEPT) -> None:
        self.store, self.offset, self.kept = store, 0, kept
        self.newest = AT
        self.hours: Counter[tuple[str, datetime, str]] = Counter()

    def add(self, at: datetime, number: int = 0, *, evaluated: int = 10, failed: int = 1) -> None:
        """Count rows of a window, unless Postgres has given its hour up (`quality.counting`)."""
        newest = self.newest = max(self.newest, at)
        if at < horizon(newest, self.kept):
            return
        counts, since = Counts(evaluated, failed), {0: self.offset} if self.offset else {}
        self.offset += 1
        found = Findings(
            check_id=SALES.check_id,
            since=since,
            until={0: self.offset},
            windows={(number, coarse(at, newest)): counts},
            totals={number: counts},
            samples=[],
        )
        assert self.store.add(found)
        hour = at.replace(minute=0)
        self.hours[NAMES[number], hour, "evaluated"] += evaluated
        self.hours[NAMES[number], hour, "failed"] += failed


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / PATH).to_pyarrow_table().to_pylist()
    return rows


def hours(folder: Path) -> Counter[tuple[str, datetime, str]]:
    rows = table(folder)
    assert len({(row["check"], row["expectation"], row["start"]) for row in rows}) == len(rows)
    return Counter(
        {(row["expectation"], row["start"], what): row[what] for row in rows for what in ("evaluated", "failed")}
    )


def test_the_table_has_hours_and_corrects_those_that_rows_come_late_to(store: QualityStore, tmp_path: Path) -> None:
    counted, archive = Counted(store), CountsTable(str(tmp_path), store)
    plans = {SALES.check_id: SALES, PLANS["Dear"].check_id: PLANS["Dear"]}
    assert archive.write(plans) == 0
    assert not (tmp_path / PATH).exists()
    counted.add(AT)
    counted.add(AT + timedelta(minutes=55), failed=0)
    counted.add(AT + timedelta(hours=1), number=2)
    assert archive.write(plans) == 2
    assert table(tmp_path)[0] == {
        "check": SALES.check_id,
        "dataset": "Sales",
        "expectation": "expect_column_values_to_be_between:price",
        "version": 1,
        "mostly": 0.9,
        "start": AT,
        "evaluated": 20,
        "failed": 1,
    }
    assert archive.write(plans) == 0
    counted.add(AT + timedelta(minutes=5))
    # Another process, or the same one after a restart, goes on with what the table has.
    assert CountsTable(str(tmp_path), store).write(plans) == 1
    assert hours(tmp_path) == counted.hours


def test_several_checks_are_in_one_table(store: QualityStore, tmp_path: Path) -> None:
    archive = CountsTable(str(tmp_path), store)
    plans = {plan.check_id: plan for plan in (SALES, PLANS["Stalls"], PLANS["Dear"])}
    for hour in range(3):
        for check_id in plans:
            found = Findings(
                check_id=check_id,
                since={0: hour} if hour else {},
                until={0: hour + 1},
                windows={(0, AT + timedelta(hours=hour)): Counts(hour + 1, 0)},
                totals={0: Counts(hour + 1, 0)},
                samples=[],
            )
            assert store.add(found)
        assert archive.write(plans) == len(plans)
    assert archive.write(plans) == 0
    assert sorted((row["check"], row["evaluated"]) for row in table(tmp_path)) == sorted(
        (check_id, number) for check_id in plans for number in (1, 2, 3)
    )


@pytest.mark.parametrize("kept", [timedelta(days=3), timedelta(days=2, minutes=20), timedelta(hours=30, minutes=7)])
def test_counts_that_postgres_no_longer_has_stay_in_the_table(
    store: QualityStore, tmp_path: Path, kept: timedelta
) -> None:
    counted, chance = Counted(store, kept), random.Random(3)
    retention = Retention(store, CountsTable(str(tmp_path), store), kept)
    retention.follow({SALES.check_id: SALES})
    for day in range(8):
        for _ in range(12):
            # Rows come late, also to hours that Postgres has given up: these are part of the totals only.
            late = chance.choice([kept, timedelta(0)]) - timedelta(minutes=5 * chance.randrange(-30, 30))
            counted.add(AT + timedelta(days=day + 2) - late, number=chance.randrange(3))
        if chance.random() < 0.7:
            assert retention.prune()
    assert retention.prune()
    left = store.windows([SALES.check_id], 24 * 30)[SALES.check_id]
    assert sum(counts.evaluated for counts in left.values()) < sum(
        number for (_, _, what), number in counted.hours.items() if what == "evaluated"
    )
    assert hours(tmp_path) == counted.hours
    # The last counts of a check that no branch needs any more are written before they are removed.
    counted.add(AT + timedelta(days=11))
    retention.follow({})
    assert retention.prune()
    assert store.windows([SALES.check_id], 24 * 30) == {}
    assert hours(tmp_path) == counted.hours


def test_nothing_is_removed_that_the_table_lacks(store: QualityStore, tmp_path: Path) -> None:
    counted = Counted(store)
    counted.add(AT)
    counted.add(AT + 2 * KEPT)
    away = tmp_path / "objects"
    away.write_text("This isn't a folder.")
    retention = Retention(store, CountsTable(str(away), store), KEPT)
    retention.follow({SALES.check_id: SALES})
    assert not retention.prune()
    assert len(store.windows([SALES.check_id], 24 * 30)[SALES.check_id]) == 2
    away.unlink()
    assert retention.prune()
    assert len(store.windows([SALES.check_id], 24 * 30)[SALES.check_id]) == 1
    assert hours(away) == counted.hours
    # Without an archive, old counts go as they always did.
    without = Retention(store, None, timedelta(0))
    without.follow({})
    assert without.prune()
    assert store.windows([SALES.check_id], 24 * 30) == {}


def test_a_process_leaves_no_counts_of_former_checks_to_the_next_one(store: QualityStore, tmp_path: Path) -> None:
    counted = Counted(store)
    counted.add(AT)
    away = tmp_path / "objects"
    away.write_text("This isn't a folder.")
    retention = Retention(store, CountsTable(str(away), store), KEPT)
    retention.follow({SALES.check_id: SALES})
    retention.follow({PLANS["Dear"].check_id: PLANS["Dear"]})
    assert not retention.prune()
    away.unlink()
    retention.finish()
    assert hours(away) == counted.hours
    # The next process knows nothing of the former check, so there is nothing for it to write.
    following = Retention(store, CountsTable(str(tmp_path / "others"), store), KEPT)
    following.follow({PLANS["Dear"].check_id: PLANS["Dear"]})
    following.finish()
    assert not (tmp_path / "others" / PATH).exists()


def test_the_table_has_few_files(store: QualityStore, tmp_path: Path) -> None:
    counted, archive = Counted(store), CountsTable(str(tmp_path), store)
    for hour in range(FILES + 2):
        counted.add(AT + timedelta(hours=hour))
        assert archive.write({SALES.check_id: SALES}) == 1
    assert len(DeltaTable(tmp_path / PATH).file_uris()) < FILES
    assert hours(tmp_path) == counted.hours
