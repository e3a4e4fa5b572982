from collections.abc import Iterator
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from caraway.state.secrets import SecretStore
from caraway.state.tables import secrets


def at(second: int) -> datetime:
    return datetime(2026, 1, 31, 12, 0, second, tzinfo=UTC)


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE secrets (name, key_id, sealed, created_at, updated_at, updated_by)"))
        for name in ("one", "other"):
            row = {"name": name, "key_id": "key", "sealed": b"old", "created_at": at(0), "updated_at": at(0)}
            connection.execute(sa.insert(secrets).values(**row, updated_by=""))
    yield engine
    engine.dispose()


def change(engine: sa.Engine, name: str, second: int) -> None:
    with engine.begin() as connection:
        new = {"sealed": b"new", "updated_at": at(second)}
        connection.execute(sa.update(secrets).where(secrets.c.name == name).values(new))


def test_a_change_is_seen_that_was_begun_before_another_and_committed_after_it(engine: sa.Engine) -> None:
    store = SecretStore(engine, Mock())
    store.refresh()
    change(engine, "other", 2)
    store.refresh()
    change(engine, "one", 1)
    assert {name: found.sealed for name, found in store.names().items()} == {"one": b"new", "other": b"new"}


def test_secrets_that_have_not_changed_are_not_read_again(engine: sa.Engine) -> None:
    store = SecretStore(engine, Mock())
    before = store.names()
    assert store.names() is before
    with engine.begin() as connection:
        connection.execute(sa.delete(secrets).where(secrets.c.name == "one"))
    assert list(store.names()) == ["other"]
