"""The rows that a commit and an entry of the ledger read, in a database with many assets of other branches and of old.

Rows are counted, since times differ between machines: a commit reads what it touches, not what there is or ever was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy import event

from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.state.allocation import AssetState
from caraway.state.blueprints import blueprints
from caraway.state.ledger import ActionOutcome
from caraway.state.model import MAIN
from caraway.state.tables import assets, ledger
from tests.integration.state.deployment import FIRST, SECOND, Deployment
from tests.unit.apps.server.control.graphs import clicks, spend

LIVE, KEPT, PAST = 1_000, 500, 10_000
# More than the statements about a commit of nine assets return, and less than any of the numbers above.
FEW = 300


def add_many(engine: sa.Engine, here: Deployment) -> None:
    """Add assets of another branch, assets that are kept for a while, and assets that are gone."""
    here.branches.create("other")
    commit = here.commit(Graph(datasets=(clicks(),)), "other")
    here.work()
    asset = sa.text(
        "INSERT INTO assets (id, kind, content, generation, dataset, state, requires, commit_id)"
        " SELECT 'topic:' || :name || n, 'topic', :name || n, 1, 'D', :state,"
        " CASE WHEN n % 3 = 0 THEN ARRAY[]::text[] ELSE ARRAY['topic:' || :name || (n - 1)] END, :commit"
        " FROM generate_series(1, :count) n"
    )
    groups = [("live", LIVE, AssetState.READY), ("kept", KEPT, AssetState.READY), ("past", PAST, AssetState.GONE)]
    with engine.begin() as connection:
        for name, count, state in groups:
            connection.execute(asset, {"name": name, "count": count, "state": state, "commit": commit})
        connection.execute(
            sa.text("INSERT INTO asset_references SELECT 'other', 'head', id FROM assets WHERE id LIKE 'topic:live%'")
        )
        values = [assets.c.id, *map(sa.literal, ("destroy", "open", here.now + timedelta(hours=1), here.now))]
        kept = sa.select(*values).where(assets.c.id.like("topic:kept%"))
        columns = [ledger.c.asset_id, ledger.c.deed, ledger.c.state, ledger.c.due_at, ledger.c.opened_at]
        connection.execute(sa.insert(ledger).from_select(columns, kept))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))


@contextmanager
def rows_of(engine: sa.Engine) -> Iterator[list[int]]:
    """Yield a list that gets the number of rows that each statement returns or changes."""
    counts: list[int] = []

    def count(_connection: object, cursor: sa.CursorResult[int], *_rest: object) -> None:
        counts.append(max(0, cursor.rowcount))

    event.listen(engine, "after_cursor_execute", count)
    try:
        yield counts
    finally:
        event.remove(engine, "after_cursor_execute", count)


def test_a_commit_reads_what_it_touches(engine: sa.Engine, here: Deployment) -> None:
    add_many(engine, here)
    wanted = blueprints(plan_graph(FIRST))
    with rows_of(engine) as counts:
        here.reader.assets({blueprint.content for blueprint in wanted})
        here.reader.offered(wanted, MAIN, None)
        here.commit(FIRST)
    assert counts
    assert sum(counts) < FEW
    before = {entry.asset_id for entry in here.reader.ledger()}
    here.commit(SECOND)
    here.ledger.promote()
    assert {f"topic:kept{n}" for n in range(1, KEPT + 1)} <= before


def test_an_entry_of_the_ledger_reads_what_it_touches(engine: sa.Engine, here: Deployment) -> None:
    add_many(engine, here)
    here.commit(FIRST)
    with rows_of(engine) as counts:
        claim = here.ledger.claim()
        assert claim is not None
        assert here.ledger.close(claim, ActionOutcome.DONE)
        here.ledger.promote()
    assert sum(counts) < FEW
    assert here.serving(MAIN) is not None


def test_many_assets_that_are_due_are_destroyed_from_the_top_down(engine: sa.Engine, here: Deployment) -> None:
    add_many(engine, here)
    here.now += timedelta(hours=2)
    claims = [claim for _ in range(20) if (claim := here.ledger.claim()) is not None]
    names = {claim.name for claim in claims}
    # Each third asset begins a chain of three, of which each requires the one before.
    assert len(names) == len(claims) == 20
    assert all((int(name.removeprefix("kept")) + 1) % 3 == 0 or name == f"kept{KEPT}" for name in names)


def test_references_decide_again_after_each_change(engine: sa.Engine, here: Deployment) -> None:
    add_many(engine, here)
    here.branches.delete("other")
    due = here.due()
    assert {f"topic:live{n}" for n in range(1, LIVE + 1)} <= due.keys()
    here.commit(Graph(datasets=(clicks(), spend())))
    assert not any(":past" in name for name in here.due())
