"""The record of offline queries, on a real Postgres."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.offline.queries.credentials import opened, sealed
from caraway.offline.queries.model import OfflineRequest, Part, Place, QueryStatus, StoredRows
from caraway.offline.queries.store import LEASES, LOADS, OfflineQueries, process_name
from caraway.process.secrets.keyring import open_keyring
from caraway.state.database import connect
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.tables import offline_queries as table

STORED = StoredRows("input.json")


@pytest.fixture
def database(postgres: str) -> Iterator[sa.Engine]:
    engine = connect(postgres)
    yield engine
    engine.dispose()


@pytest.fixture
def queries(database: sa.Engine) -> OfflineQueries:
    return OfflineQueries(database)


def request(rows: StoredRows | Place = STORED, output: Place | None = None) -> OfflineRequest:
    return OfflineRequest(inputs=("A.k",), outputs=("A",), timestamp_column="at", rows=rows, output=output)


def add(
    queries: OfflineQueries,
    query_id: str,
    asked: OfflineRequest | None = None,
    branch: str = "main",
    account: str = "ann",
) -> None:
    queries.add(query_id, asked or request(), branch=branch, commit="c1", account=account, workflow="w")


def test_a_query_from_its_request_to_its_end(queries: OfflineQueries) -> None:
    place = Place(url="s3://b/p", format="csv", delimiter=";", headers=("a", "b"), columns={"A.k": "a"}, role_arn="r")
    add(queries, "q", request(place))
    found = queries.get("q")
    assert (found.status, found.branch, found.commit, found.account) == (QueryStatus.WAITING, "main", "c1", "ann")
    assert found.request == request(place)
    assert (found.cuts, found.rows, found.parts, found.cancelled, found.ended_at) == (None, None, (), False, None)
    queries.begin("q", {"t": {0: 5, 11: 7}}, 9)
    queries.begin("q", {"t": {0: 50}}, 9)
    queries.advance("q", [Part(5, 1)])
    found = queries.get("q")
    assert (found.status, found.rows, found.parts) == (QueryStatus.RUNNING, 9, (Part(5, 1),))
    assert found.cuts == {"t": {0: 5, 11: 7}}, "the first cuts stay, so that all parts see the same records"
    queries.end("q", QueryStatus.SUCCEEDED)
    ended = queries.get("q")
    assert ended.status is QueryStatus.SUCCEEDED
    assert ended.ended_at is not None


def test_a_query_that_is_over_never_changes(queries: OfflineQueries) -> None:
    add(queries, "q")
    queries.end("q", QueryStatus.FAILED, "why")
    before = queries.get("q")
    queries.begin("q", {}, 1)
    queries.advance("q", [Part(1, 0)])
    queries.attempt("q")
    queries.note("q", "another")
    queries.cancel("q")
    queries.end("q", QueryStatus.SUCCEEDED)
    assert queries.get("q") == before
    assert (before.status, before.error) == (QueryStatus.FAILED, "why")


def test_a_part_ends_the_count_of_attempts(queries: OfflineQueries) -> None:
    add(queries, "q")
    queries.attempt("q")
    queries.attempt("q")
    queries.note("q", "away")
    assert (queries.get("q").attempts, queries.get("q").error) == (2, "away")
    queries.attempt("q", -1)
    assert queries.get("q").attempts == 1
    queries.advance("q", [Part(1, 0)])
    assert (queries.get("q").attempts, queries.get("q").error) == (0, None)
    queries.attempt("q", -1)
    assert queries.get("q").attempts == 0


def test_a_query_waits_while_no_process_has_its_lease(queries: OfflineQueries, database: sa.Engine) -> None:
    for query_id in ("a", "b", "c", "d"):
        add(queries, query_id)
    queries.begin("b", {}, 1)
    queries.end("c", QueryStatus.CANCELLED)
    lease = HeldLease(Lease(engine=database, name=LEASES + "a", owner=process_name(7)), timedelta(minutes=10))
    assert lease.keep(succeeds=False)
    assert [query.id for query in queries.waiting()] == ["b", "d"], "the oldest first, those that ran once too"
    queries.release("a", process_name(8))
    assert len(queries.waiting()) == 2, "another process's lease stays"
    queries.release("a", process_name(7))
    assert [query.id for query in queries.waiting()] == ["a", "b", "d"]


def order_of(queries: OfflineQueries) -> list[str]:
    """Work on all queries, one at a time, and return their ids in this order."""
    order = []
    while waiting := queries.waiting():
        order.append(waiting[0].id)
        queries.end(order[-1], QueryStatus.SUCCEEDED)
    return order


def test_accounts_take_turns_however_much_one_of_them_asks(queries: OfflineQueries) -> None:
    for number in range(5):
        add(queries, f"a{number}")
    add(queries, "b0", account="bob")
    add(queries, "b1", account="bob")
    add(queries, "load-1", branch="", account=LOADS)
    assert order_of(queries) == ["a0", "b0", "load-1", "a1", "b1", "a2", "a3", "a4"]
    # An account whose last query ended long ago comes before one that has just had a turn.
    add(queries, "b2", account="bob")
    add(queries, "a5")
    add(queries, "c0", account="cid")
    assert order_of(queries) == ["c0", "b2", "a5"]


def test_a_query_that_runs_is_the_turn_of_its_account(queries: OfflineQueries, database: sa.Engine) -> None:
    for query_id in ("a0", "a1", "a2"):
        add(queries, query_id)
    lease = HeldLease(Lease(engine=database, name=LEASES + "a0", owner=process_name(7)), timedelta(minutes=10))
    assert lease.keep(succeeds=False)
    add(queries, "b0", account="bob")
    assert [query.id for query in queries.waiting()] == ["b0", "a1", "a2"]


def test_the_queries_of_an_account_that_are_not_over_are_counted(queries: OfflineQueries) -> None:
    for query_id in ("a0", "a1", "a2"):
        add(queries, query_id)
    add(queries, "b0", account="bob")
    queries.begin("a0", {}, 1)
    queries.cancel("a1")
    queries.end("a2", QueryStatus.FAILED, "why")
    assert [queries.unfinished(account) for account in ("ann", "bob", "cid")] == [2, 1, 0]


def test_queries_of_a_branch_are_listed_newest_first(queries: OfflineQueries) -> None:
    for query_id, branch in (("1", "main"), ("2", "dev"), ("3", "main")):
        add(queries, query_id, branch=branch)
    assert [query.id for query in queries.of_branch("main")] == ["3", "1"]
    assert [query.id for query in queries.of_branch("dev")] == ["2"]
    with pytest.raises(UnknownEntityError, match="no offline query '4'"):
        queries.get("4")


def test_only_queries_that_ended_long_ago_are_forgotten(queries: OfflineQueries, database: sa.Engine) -> None:
    for query_id in ("running", "new", "old"):
        add(queries, query_id)
    for query_id in ("new", "old"):
        queries.end(query_id, QueryStatus.SUCCEEDED)
    with database.begin() as connection:
        old = sa.update(table).where(table.c.id.in_(["old", "running"]))
        connection.execute(old.values(asked_at=table.c.asked_at - timedelta(days=40)))
        connection.execute(
            sa.update(table).where(table.c.id == "old").values(ended_at=table.c.ended_at - timedelta(days=31))
        )
    assert queries.old(timedelta(days=30)) == ["old"]
    queries.forget("old")
    assert queries.old(timedelta(days=30)) == []
    assert [query.id for query in queries.of_branch("main")] == ["new", "running"]


def test_access_keys_are_sealed_and_dropped_at_the_end(
    queries: OfflineQueries, database: sa.Engine, tmp_path: Path
) -> None:
    keyring = open_keyring(tmp_path / "key")
    access = ("AKIAKEY", "TOP+SECRET")
    place = Place(url="s3://b/p", credentials=sealed(keyring, "q", access))
    add(queries, "q", request(place, place))
    with database.connect() as connection:
        row = str(connection.execute(sa.select(table)).one())
    assert "AKIAKEY" not in row
    assert "SECRET" not in row
    found = queries.get("q").request
    assert isinstance(found.rows, Place)
    assert found.output is not None
    assert opened(keyring, "q", found.rows) == opened(keyring, "q", found.output) == access
    with pytest.raises(UnavailableError):
        opened(keyring, "another query", found.rows)
    queries.end("q", QueryStatus.FAILED, "why")
    ended = queries.get("q").request
    assert isinstance(ended.rows, Place)
    assert ended.output is not None
    assert (ended.rows.credentials, ended.output.credentials) == (None, None)
    assert ended.rows.url == "s3://b/p"
