"""The state on a real Postgres."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from caraway.apps.stack import ports
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.errors import ConflictError, InvalidInputError, UnavailableError, UnknownEntityError
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.state.branches import Branches
from caraway.state.database import NULL_SYMBOL, connect, require_tables
from caraway.state.migrate import is_migrated, migrate
from caraway.state.model import DesiredState, JobState
from caraway.state.reader import StateReader
from caraway.state.registry import JobPauses, JobRegistry
from caraway.state.tables import metadata
from caraway.state.writer import StateWriter
from tests.alone import running
from tests.integration.state.deployment import FIRST, SECOND, new_commit
from tests.unit.apps.server.control.graphs import users


@contextmanager
def opened(url: str) -> Iterator[sa.Engine]:
    engine = connect(url)
    yield engine
    engine.dispose()


@pytest.fixture
def reader(engine: sa.Engine) -> StateReader:
    return StateReader(engine)


@pytest.fixture
def writer(engine: sa.Engine) -> StateWriter:
    return StateWriter(engine)


def test_the_migrations_make_the_tables_of_the_queries(empty_postgres: str) -> None:
    migrate(empty_postgres)
    with opened(empty_postgres) as engine, engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_again_and_at_once_is_harmless(empty_postgres: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, [empty_postgres] * 4))
    migrate(empty_postgres)
    with opened(empty_postgres) as engine:
        assert is_migrated(engine)


def test_a_process_that_requires_tables_asks_for_none_that_are_missing(empty_postgres: str) -> None:
    with opened(empty_postgres) as engine:
        require_tables(engine, metadata.tables)
        statements: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="has not set up the tables yet"):
                StateReader(engine).branch_heads()
        assert not any("branches" in statement for statement in statements)
        migrate(empty_postgres)
        assert StateReader(engine).branch_heads().commits == ()
        assert StateReader(engine).head_id() is None


def test_a_read_before_the_tables_are_made_can_be_asked_again(empty_postgres: str) -> None:
    with opened(empty_postgres) as engine, pytest.raises(UnavailableError, match="has not set up the tables yet"):
        StateReader(engine).head_id()


def test_a_fresh_branch_is_empty(reader: StateReader) -> None:
    assert reader.head_id() is None
    assert reader.head().graph == b""
    assert reader.history() == ()
    with pytest.raises(UnknownEntityError, match="'nowhere'"):
        reader.head("nowhere")


def test_a_commit_moves_its_branch_and_wants_its_jobs(reader: StateReader, writer: StateWriter) -> None:
    commit = new_commit("a", None, FIRST)
    writer.publish(commit)
    head = reader.head()
    assert (head.commit_id, head.graph) == ("a", commit.graph)
    record = reader.commit("a")
    assert (record.message, record.author, record.summary) == (
        "message of a",
        "me@example.com",
        ("line 1", "line 2"),
    )
    (job,) = reader.jobs()
    assert (job.commit_id, job.dataset, job.pipeline, job.mode) == ("a", "Spend", "sum_up", "real-time")
    assert (job.desired, job.state, job.attempts) == (DesiredState.RUNNING, JobState.PENDING, 0)
    writer.publish(new_commit("b", "a", SECOND))
    assert [record.id for record in reader.history()] == ["b", "a"]
    assert [record.id for record in reader.history(limit=1)] == ["b"]
    with pytest.raises(UnknownEntityError, match="'c'"):
        reader.commit("c")


def test_publishing_twice_is_publishing_once(reader: StateReader, writer: StateWriter) -> None:
    first = new_commit("a", None, FIRST)
    writer.publish(first)
    writer.publish(first)
    writer.publish(new_commit("b", "a", SECOND))
    writer.publish(first)  # a late retry, after another commit was made on top of it
    assert reader.head_id() == "b"


def test_a_commit_on_an_old_head_is_refused_and_says_who_won(reader: StateReader, writer: StateWriter) -> None:
    writer.publish(new_commit("a", None, FIRST))
    with pytest.raises(
        ConflictError, match=r"commit a \('message of a' by me@example.com, .* UTC\) was made"
    ) as caught:
        writer.publish(new_commit("b", None, SECOND))
    assert "commit again" in str(caught.value)
    assert reader.head_id() == "a"
    assert [job.commit_id for job in reader.jobs()] == ["a"]
    with pytest.raises(ConflictError):
        writer.publish(new_commit("b", "somewhere else", SECOND))


def test_of_many_commits_at_once_one_wins(reader: StateReader, writer: StateWriter) -> None:
    def publish(number: int) -> str:
        try:
            writer.publish(new_commit(f"c{number}", None, FIRST))
        except ConflictError:
            return "refused"
        return f"c{number}"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(publish, range(12)))
    won = [outcome for outcome in outcomes if outcome != "refused"]
    assert won == [reader.head_id()]
    assert len(reader.history()) == 1


def test_jobs_that_go_on_keep_what_was_reported(engine: sa.Engine, reader: StateReader, writer: StateWriter) -> None:
    writer.publish(new_commit("a", None, FIRST))
    (job,) = reader.jobs()
    JobRegistry(engine).report(
        job.job_id, state=JobState.RUNNING, mode="micro-batch", attempts=3, error="died", progress={"offsets": {"0": 7}}
    )
    writer.publish(new_commit("b", "a", Graph(datasets=(*FIRST.datasets, users()))))
    (job,) = reader.jobs()
    assert (job.commit_id, job.state, job.attempts, job.error) == ("b", JobState.RUNNING, 3, "died")
    assert job.progress == {"offsets": {"0": 7}}


def test_a_commit_shares_no_more_than_its_author_may(
    engine: sa.Engine, reader: StateReader, writer: StateWriter
) -> None:
    Branches(engine).create("dev")
    writer.publish(new_commit("a", None, FIRST))
    ids = frozenset(asset.id for asset in reader.assets())
    for shares in (frozenset(), ids - {min(ids)}):
        with pytest.raises(ConflictError, match="has begun to use"):
            writer.publish(new_commit("b", None, FIRST, branch="dev", shares=shares))
    assert reader.head_id("dev") is None
    writer.publish(new_commit("b", None, FIRST, branch="dev", shares=ids))
    # A branch needs no right to what it has already.
    writer.publish(new_commit("c", "b", FIRST, branch="dev", shares=frozenset()))
    assert set(reader.references().values()) == {frozenset({"main", "dev"})}


def test_a_clone_shares_all_and_goes_its_own_way(engine: sa.Engine, reader: StateReader, writer: StateWriter) -> None:
    branches = Branches(engine)
    writer.publish(new_commit("a", None, FIRST))
    before = reader.assets()
    # Somebody has checked an empty branch, or another commit of it, and this one has come meanwhile.
    for checked in ((), ("b",)):
        with pytest.raises(ConflictError, match="clone it again"):
            branches.clone("dev/me", "main", checked)
    branches.clone("dev/me", "main", ("a",))
    assert reader.assets() == before
    assert set(reader.references().values()) == {frozenset({"main", "dev/me"})}
    writer.publish(new_commit("b", "a", SECOND, branch="dev/me"))
    assert (reader.head_id(), reader.head_id("dev/me")) == ("a", "b")
    assert [record.id for record in reader.history("dev/me")] == ["b", "a"]
    assert [record.id for record in reader.history()] == ["a"]
    branches.delete("dev/me")
    assert reader.commit("b").branch == "dev/me"
    assert {asset_id for asset_id, names in reader.references().items() if names} == {asset.id for asset in before}
    with pytest.raises(UnknownEntityError):
        reader.head("dev/me")
    with pytest.raises(InvalidInputError):
        branches.delete("main")
    with pytest.raises(UnknownEntityError, match="to clone"):
        branches.clone("x", "dev/me")
    branches.create("x")
    with pytest.raises(ConflictError, match="'x' already"):
        branches.create("x")


def test_the_reader_can_t_write(engine: sa.Engine) -> None:
    reader = StateReader(engine)
    with pytest.raises(sa.exc.InternalError, match="read-only"), reader._engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM branches"))


def test_the_registry_follows_the_branch(engine: sa.Engine, reader: StateReader, writer: StateWriter) -> None:
    registry = JobRegistry(engine)
    assert registry.desired_jobs() == ()
    writer.publish(new_commit("a", None, FIRST))
    assert registry.desired_jobs() == plan_graph(FIRST).jobs
    assert registry.desired_jobs() is registry.desired_jobs()
    writer.publish(new_commit("b", "a", SECOND))
    # The old job runs on until the new one has caught up.
    job, old = registry.desired_jobs()
    assert (old,) == plan_graph(FIRST).jobs
    assert job == plan_graph(SECOND).jobs[0]
    registry.report(job.job_id, state="running", mode="real-time", attempts=2, progress={"rows": 5})
    record = next(record for record in reader.jobs() if record.job_id == job.job_id)
    assert (record.state, record.attempts, record.progress) == (JobState.RUNNING, 2, {"rows": 5})
    with pytest.raises(ValueError, match="asleep"):
        registry.report(job.job_id, state="asleep", mode="real-time", attempts=2)
    registry.report("unknown", state="running", mode="real-time", attempts=1)


def test_texts_with_null_characters_are_kept_and_found_nowhere(
    engine: sa.Engine, reader: StateReader, writer: StateWriter
) -> None:
    registry = JobRegistry(engine)
    writer.publish(new_commit("a", None, FIRST))
    (job,) = registry.desired_jobs()
    registry.report(job.job_id, state="failing", mode="real-time", attempts=1, error="ValueError: a\0b")
    (record,) = reader.jobs()
    assert record.error == f"ValueError: a{NULL_SYMBOL}b"
    with pytest.raises(UnknownEntityError, match="there is no commit"):
        reader.commit("\0")
    with pytest.raises(InvalidInputError, match="contains a null character"):
        registry.report(job.job_id, state="failing", mode="real-time", attempts=1, progress={"place": "a\0b"})


def test_a_paused_job_is_not_to_run_until_it_goes_on(
    engine: sa.Engine, reader: StateReader, writer: StateWriter
) -> None:
    registry, pauses = JobRegistry(engine), JobPauses(engine)
    writer.publish(new_commit("a", None, FIRST))
    (job,) = registry.desired_jobs()
    pauses.set(job.job_id, paused=True)
    assert registry.desired_jobs() == ()
    # A commit that keeps the job doesn't let it go on, and neither does a report of the engine that has stopped it.
    writer.publish(new_commit("b", "a", Graph(datasets=(*FIRST.datasets, users()))))
    registry.report(job.job_id, state="stopped", mode="real-time", attempts=1)
    assert registry.desired_jobs() == ()
    (record,) = reader.jobs()
    assert (record.paused, record.shown_state, record.state) == (True, "paused", JobState.STOPPED)
    pauses.set(job.job_id, paused=False)
    assert [found.job_id for found in registry.desired_jobs()] == [job.job_id]
    with pytest.raises(UnknownEntityError, match="no job 'other'"):
        pauses.set("other", paused=True)


def test_connections_that_postgres_cut_are_made_anew(postgres: str, reader: StateReader) -> None:
    assert reader.head_id() is None
    with opened(postgres) as another, another.connect() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    assert reader.head_id() is None


def test_a_killed_postgres_that_comes_back_goes_unnoticed(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, ports.choose())
    with opened(server.url) as engine, ThreadPoolExecutor(1) as pool:
        with running(server, tmp_path / "log") as pid:
            migrate(server.url)
            StateWriter(engine).publish(new_commit("a", None, FIRST))
            os.kill(pid, signal.SIGKILL)
        # The request is sent while Postgres is down, and answered once it is back.
        answer = pool.submit(StateReader(engine).head_id)
        with running(server, tmp_path / "log"):
            assert answer.result(timeout=30) == "a"
