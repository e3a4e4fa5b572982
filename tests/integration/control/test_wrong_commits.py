"""Wrong commits to a real control plane: each is refused with entity and reason, and the branch is as it was."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.control.service import CommitService
from caraway.errors import CarawayError, CommitError, InvalidInputError, UnavailableError, UnknownEntityError
from caraway.graph.specs import Graph, Metadata
from caraway.graph.wire.graphs import CommitRequest, decode_commit, encode_commit
from caraway.state.branches import Branches
from caraway.state.model import MAIN
from caraway.state.writer import StateWriter
from tests.integration.control.steps import Clock, Plant, Steps, content
from tests.unit.graph import test_commit_mistakes as mistakes
from tests.unit.graph import test_source_checks as sources
from tests.unit.graph.building import facts_of

BRANCH = mistakes.BRANCH


@dataclass(frozen=True)
class Wrong:
    """A request that is refused, with all `facts` in the message, and one of the `names` if there are any."""

    graph: Graph
    facts: list[str]
    incremental: bool = False
    names: tuple[str, ...] = ()


def wrong_graphs() -> list[Wrong]:
    """Return the mistakes of the unit tests."""
    found = []
    for case in (
        *mistakes.ENTITIES,
        *mistakes.SOURCES,
        *mistakes.PIPELINES,
        *mistakes.EXPECTATIONS,
        *mistakes.FEATURESETS,
    ):
        graph, _, said = case.values
        found.append(Wrong(graph, facts_of(said)))
    for refused in sources.REFUSED:
        dataset, source, *_ = refused.values
        fed = replace(dataset, sources=(source,), metadata=Metadata(owner="bees@example.com"))
        # The message may name another mistake of the dataset, such as its keys without upsert.
        found.append(Wrong(Graph(datasets=(fed,), featuresets=()), [], names=(dataset.name,)))
    return found


def wrong_changes() -> list[Wrong]:
    """Return changes that the existing definitions of the branch don't allow."""
    marks: list[Any] = mistakes.test_a_changed_definition_needs_a_greater_version.pytestmark  # type: ignore[attr-defined]
    (test,) = [mark for mark in marks if mark.name == "parametrize" and "said" in mark.args[0]]
    cases = [case.values for case in test.args[1]]
    changed = [Wrong(graph, facts_of(said), incremental) for graph, _, said in cases for incremental in (True, False)]
    names = [spec.name for spec in BRANCH.datasets]
    forgotten = [
        Wrong(replace(BRANCH, datasets=tuple(d for d in BRANCH.datasets if d.name != name)), [name]) for name in names
    ]
    return [*changed, *forgotten, Wrong(replace(BRANCH, featuresets=()), ["User"])]


@pytest.fixture
def plant(postgres: str, tmp_path: Path) -> Iterator[Plant]:
    plant = Plant(postgres, tmp_path, Steps(), Clock())
    plant.commits.commit(CommitRequest(message="sound", graph=BRANCH))
    yield plant
    plant.close()


def cases() -> Iterator[tuple[str, Wrong]]:
    """Yield wrong requests, each with its branch; `new` is an empty branch."""
    for case in wrong_graphs():
        # On the empty branch a deleted entity has never existed, so the message doesn't mention a deletion.
        yield "new", replace(case, facts=[fact for fact in case.facts if fact != "deletes"])
        # On main a request is refused for its own mistake or for the existing definitions, whichever check comes first.
        names = [spec.name for spec in (*case.graph.datasets, *BRANCH.datasets)]
        names += [spec.name for spec in (*case.graph.featuresets, *BRANCH.featuresets)]
        yield MAIN, replace(case, facts=[], names=tuple(names))
    for case in wrong_changes():
        yield MAIN, case


def test_two_hundred_wrong_commits_change_nothing(plant: Plant, postgres: str) -> None:
    Branches(plant.engine).create("new")
    before, topics = content(postgres), sorted(plant.topics())
    wrong = list(cases())
    assert len(wrong) >= 200
    for branch, case in wrong:
        request = CommitRequest(message="wrong", graph=case.graph, incremental=case.incremental)
        with pytest.raises(CarawayError) as caught:
            plant.commits.commit(decode_commit(encode_commit(request)), branch=branch)
        said = str(caught.value)
        assert not [fact for fact in case.facts if fact not in said], said
        assert not case.names or any(name in said for name in case.names), said
    assert content(postgres) == before
    assert sorted(plant.topics()) == topics
    # The refused commits don't prevent a correct one.
    plant.commits.commit(CommitRequest(message="sound again", graph=BRANCH), branch="new")


def test_what_isnt_a_commit_changes_nothing(plant: Plant, postgres: str) -> None:
    before = content(postgres)
    sound = encode_commit(CommitRequest(message="sound", graph=BRANCH))
    for broken in (sound[:-7], b"\xff" * 40, sound[5:], b"GET / HTTP/1.1"):
        with pytest.raises((InvalidInputError, CommitError)):
            plant.commits.commit(decode_commit(broken))
    for branch in ("nowhere", "", "main "):
        with pytest.raises(UnknownEntityError, match="there is no branch"):
            plant.commits.commit(CommitRequest(message="lost", graph=BRANCH), branch=branch)
    graph = mistakes.with_dataset(mistakes.LATEST, version=2)
    with pytest.raises(CommitError, match="Made"):
        plant.commits.commit(CommitRequest(message="no backfill", graph=graph, backfill=False))
    assert content(postgres) == before


TABLES = ("commits", "branches", "assets", "asset_references", "ledger", "jobs")
# Error conditions of Postgres, with its messages.
TROUBLES = {
    "disk_full": "could not extend file: No space left on device",
    "read_only_sql_transaction": "cannot execute INSERT in a read-only transaction",
}


def trouble(postgres: psycopg.Connection, table: str, condition: str) -> None:
    """Make Postgres refuse to change a table, with one of its own error conditions."""
    postgres.execute(
        sql.SQL("""
            CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{}' USING ERRCODE = '{}'; END $$;
            CREATE TRIGGER trouble BEFORE INSERT OR UPDATE OR DELETE ON {} EXECUTE FUNCTION trouble()
        """).format(sql.SQL(TROUBLES[condition]), sql.SQL(condition), sql.Identifier(table))
    )


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("condition", TROUBLES)
def test_a_postgres_that_takes_nothing_refuses_the_commit_whole(
    plant: Plant, postgres: str, table: str, condition: str
) -> None:
    before = content(postgres)
    graph = mistakes.with_dataset(mistakes.EVENTS, metadata=replace(mistakes.OWNED, description="new"))
    later = tuple(replace(d, version=2) if d is mistakes.PEOPLE else d for d in graph.datasets)
    request = CommitRequest(message="changed", graph=replace(graph, datasets=later, featuresets=()), incremental=True)
    with psycopg.connect(postgres, autocommit=True) as operator:
        trouble(operator, table, condition)
        writer = StateWriter(plant.engine, timeout_seconds=0.2, keep=timedelta())
        hasty = CommitService(plant.reader, writer, plant.reconciler)
        with pytest.raises(UnavailableError, match=TROUBLES[condition]):
            hasty.commit(request)
        operator.execute("DROP FUNCTION trouble CASCADE")
    assert content(postgres) == before
    assert hasty.commit(request).commit_id == plant.reader.head_id()


def test_a_kafka_that_is_away_refuses_the_commit(plant: Plant, postgres: str) -> None:
    before = content(postgres)
    control = Control.connect(postgres, "127.0.0.1:1", kafka_timeout_s=0.5)
    with pytest.raises(UnavailableError, match="Kafka"):
        control.commits.commit(CommitRequest(message="sound", graph=BRANCH))
    control.close()
    assert content(postgres) == before
