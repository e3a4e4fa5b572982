"""Listeners are notified of each commit at once, by any process, also after the connection was lost."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from caraway.process.secrets.keyring import open_keyring
from caraway.state.access import Access
from caraway.state.branches import Branches
from caraway.state.database import connect
from caraway.state.erasures import ErasedKey, ErasureLog
from caraway.state.ledger import ActionOutcome, Ledger
from caraway.state.listening import Listener
from caraway.state.permissions import Grant, Mode
from caraway.state.secrets import SecretStore
from caraway.state.writer import StateWriter
from tests.integration.state.deployment import FIRST, SECOND, new_commit

TIMEOUT_S = 60.0


class Ear:
    """Counts notifications."""

    def __init__(self) -> None:
        self._heard = 0
        self._changed = threading.Condition()

    def hear(self) -> None:
        with self._changed:
            self._heard += 1
            self._changed.notify_all()

    def hears_of(self, change: Callable[[], object]) -> bool:
        with self._changed:
            before = self._heard
        change()
        with self._changed:
            return self._changed.wait_for(lambda: self._heard > before, TIMEOUT_S)


@pytest.fixture
def ear(postgres: str) -> Iterator[Ear]:
    ear, own = Ear(), connect(postgres)
    listener = Listener(own, ear.hear)
    # The listener calls its function when it begins to listen.
    assert ear.hears_of(listener.start)
    yield ear
    listener.stop(TIMEOUT_S)
    own.dispose()


def test_all_that_servers_must_know_of_is_heard(engine: sa.Engine, ear: Ear, tmp_path: Path) -> None:
    branches, writer, ledger = Branches(engine), StateWriter(engine), Ledger(engine, keep=timedelta(0))
    assert ear.hears_of(lambda: branches.create("one"))
    assert ear.hears_of(lambda: branches.clone("two", "one"))
    assert ear.hears_of(lambda: branches.delete("two"))
    assert ear.hears_of(lambda: writer.publish(new_commit("a", None, FIRST)))
    assert ear.hears_of(lambda: writer.publish(new_commit("b", "a", SECOND)))
    while claim := ledger.claim():
        assert ledger.close(claim, ActionOutcome.DONE)
    assert ear.hears_of(lambda: ledger.promote())
    store = SecretStore(engine, open_keyring(tmp_path / "keys"))
    assert ear.hears_of(lambda: store.add("name", "value", "me"))
    assert ear.hears_of(lambda: store.update("name", "other", "me"))
    assert ear.hears_of(lambda: store.delete("name"))
    key = ErasedKey(
        request="r",
        branch="main",
        dataset="Users",
        topic="t",
        account="",
        token_id="",
        columns=("user",),
        key_id="k",
        digest=b"d",
    )
    assert ear.hears_of(lambda: ErasureLog(engine).add([key]))
    access = Access(engine, by="test")
    assert ear.hears_of(lambda: access.define_role("reader", [Grant(modes=frozenset({Mode.READ_DATA}))]))
    assert ear.hears_of(lambda: access.create_token("me"))
    (token,) = access.tokens()
    assert ear.hears_of(lambda: access.revoke_token(token.id))


def test_a_listener_that_was_cut_off_polls_and_listens_again(engine: sa.Engine, ear: Ear) -> None:
    listening = sa.text("query LIKE 'LISTEN%' AND datname = current_database()")
    activity = sa.table("pg_stat_activity", sa.column("pid"))
    end = sa.select(sa.func.pg_terminate_backend(activity.c.pid)).where(listening)

    def cut_off() -> None:
        with engine.connect() as connection:
            assert connection.execute(end).scalars().all() == [True]

    assert ear.hears_of(cut_off)
    assert ear.hears_of(lambda: Branches(engine).create("one"))
