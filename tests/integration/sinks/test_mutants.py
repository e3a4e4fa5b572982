"""Each mistake that would break a guarantee of a sink is noticed by the sinks' own tests.

A mutant of a writer, or of the worker, takes the place of the right one, and the test that guards the guarantee must
fail. If it passes, it has become blind; if the text of a mutant isn't found any more, the mutant is to be renewed. A
copy without a mistake must pass, so a mutant doesn't fail only because it is a copy.
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import caraway.dataplane.sinks.postgres.writer
import caraway.dataplane.sinks.redis.writer
import caraway.dataplane.sinks.worker
import tests.unit.dataplane.sinks.world
from tests.integration.sinks import test_postgres_sink, test_redis_sink
from tests.integration.sinks.test_redis_sink import client, server, shared_server
from tests.mutants import mutant
from tests.unit.dataplane.sinks import test_worker

# They are fixtures.
__all__ = ["client", "server", "shared_server"]

pytestmark = [
    pytest.mark.full(reason="the test of each guarantee runs once for each mistake that would break it"),
    # A test that fails leaves its connections open.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

REDIS, POSTGRES, WORKER = (
    caraway.dataplane.sinks.redis.writer,
    caraway.dataplane.sinks.postgres.writer,
    caraway.dataplane.sinks.worker,
)
NONE = "no mistake"
Mistakes = dict[str, tuple[str, str]]


def refute(run: Callable[[], object], mistake: str) -> None:
    """Check that a test fails, or that it passes if there is no mistake."""
    if mistake == NONE:
        run()
        return
    try:
        run()
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 (a mistake may show itself by any failure)
        return
    pytest.fail(f"no test notices this mistake: {mistake}")


OF_REDIS: Mistakes = {
    NONE: ("            pipeline.multi()\n", "            pipeline.multi()\n"),
    "the position isn't written": ("            pipeline.hset(key, mapping=fields)\n", ""),
    "the position isn't compared": ("            if found != self._known:", "            if False:"),
    "deletions are left out": ("                    deletes.append(key)\n", ""),
    "rows are left out": ("            to.hset(key, mapping=value)\n", "            pass\n"),
    "rows aren't in the transaction": (
        "            self._replace(self._fields(batch.reached), partial(self._put, puts, deletes))\n",
        """
            with self._client.pipeline(transaction=False) as first:
                self._put(puts, deletes, first)
                first.execute()
            self._replace(self._fields(batch.reached), lambda _: None)
""",
    ),
}


@pytest.mark.parametrize("mistake", OF_REDIS)
def test_a_mistake_in_the_writer_of_redis_is_noticed(
    mistake: str, shared_server: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_redis_sink, "RedisWriter", mutant(REDIS, *OF_REDIS[mistake]).RedisWriter)
    test = test_redis_sink.test_the_keys_are_the_dataset_whatever_dies_and_whoever_writes
    refute(lambda: test(shared_server, client, 0), mistake)


def test_a_refused_row_of_redis_that_is_dropped_is_noticed(
    shared_server: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = mutant(REDIS, "                self._writing.refuse(refusals)\n", "                pass\n")
    monkeypatch.setattr(test_redis_sink, "RedisWriter", made.RedisWriter)
    test = test_redis_sink.test_changes_that_redis_refuses_become_dead_letters_and_the_others_are_written
    refute(lambda: test(shared_server, client), "refused rows are dropped")


OF_POSTGRES: Mistakes = {
    NONE: ("            if rows:\n", "            if rows:\n"),
    "the position isn't written": (
        "            self._save(orjson.dumps(reached).decode())\n",
        "            del reached\n",
    ),
    "the position isn't compared": ("            if known != self._known:", "            if False:"),
    "rows are left out": ("            if rows:\n", "            if False:\n"),
}


@pytest.mark.parametrize("mistake", OF_POSTGRES)
def test_a_mistake_in_the_writer_of_postgres_is_noticed(
    mistake: str, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_postgres_sink, "PostgresWriter", mutant(POSTGRES, *OF_POSTGRES[mistake]).PostgresWriter)
    test = test_postgres_sink.test_a_table_is_the_dataset_whatever_dies_and_whoever_writes
    with psycopg.connect(postgres, autocommit=True) as database:
        refute(lambda: test(postgres, database, 0), mistake)


def test_a_refused_row_of_postgres_that_is_dropped_is_noticed(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mutant(POSTGRES, "                self._writing.refuse(refusals)\n", "                pass\n")
    monkeypatch.setattr(test_postgres_sink, "PostgresWriter", made.PostgresWriter)
    test = test_postgres_sink.test_changes_that_postgres_refuses_become_dead_letters_and_the_others_are_written
    with psycopg.connect(postgres, autocommit=True) as database:
        refute(lambda: test(postgres, database), "refused rows are dropped")


OF_THE_WORKER: Mistakes = {
    NONE: ("            writer.write(batch)\n", "            writer.write(batch)\n"),
    "the position is written before the rows": (
        "            writer.write(batch)\n",
        """
            self._save(SinkPosition(branch=self._position.branch, written=batch.reached))
            writer.write(batch)
""",
    ),
    "a batch is sent twice": (
        "            writer.write(batch)\n",
        "            writer.write(batch)\n            batch.sent = 0\n            writer.write(batch)\n",
    ),
    "a batch is left out": ("            writer.write(batch)\n", "            del writer\n"),
}


@pytest.mark.parametrize("mistake", OF_THE_WORKER)
def test_a_mistake_in_the_worker_is_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tests.unit.dataplane.sinks.world, "SinkWorker", mutant(WORKER, *OF_THE_WORKER[mistake]).SinkWorker
    )
    law: Any = test_worker.test_changes_give_the_table_whatever_happens
    # The first counterexample is enough, so none is made smaller, and each run tries the same ones.
    once = settings(phases=[Phase.generate], derandomize=True, database=None, max_examples=200, deadline=None)
    test = once(given(data=st.data())(law.hypothesis.inner_test))
    refute(lambda: test(revised=True, transactional=True, remembers=False), mistake)
