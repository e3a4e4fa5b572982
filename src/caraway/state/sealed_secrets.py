"""Secrets as Postgres stores them: sealed. To open them takes the key (`integrations.keyring`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import ConflictError, UnknownEntityError
from caraway.state.database import TIMEOUT_SECONDS, retry_outages
from caraway.state.privacy_tables import secrets

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """A secret as it is stored."""

    name: str
    key_id: str
    sealed: bytes
    updated_at: datetime
    updated_by: str

    def __repr__(self) -> str:
        return f"SealedSecret({self.name})"


class SealedSecretStore:
    """Writes and reads sealed secrets. Thread safe; every operation may be repeated."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Work through `engine` (`caraway.state.connect`); outages up to `timeout_seconds` are retried."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def all(self) -> Mapping[str, SealedSecret]:
        """Return all secrets by name.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """

        def read(connection: sa.Connection) -> Mapping[str, SealedSecret]:
            wanted = sa.select(*(secrets.c[name] for name in SealedSecret.__slots__)).order_by(secrets.c.name)
            return {row["name"]: SealedSecret(**row) for row in connection.execute(wanted).mappings()}

        return self._do(read, "read the secrets")

    def state(self) -> tuple[int, datetime | None]:
        """Return the number of secrets and their newest time of change, by which pollers notice any change.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """

        def read(connection: sa.Connection) -> tuple[int, datetime | None]:
            row = connection.execute(sa.select(sa.func.count(), sa.func.max(secrets.c.updated_at))).one()
            return row[0], row[1]

        return self._do(read, "read the secrets")

    def add(self, name: str, key_id: str, sealed: bytes, by: str) -> None:
        """Store a new secret.

        Raises:
            ConflictError: A secret of this name exists.
            UnavailableError: Postgres doesn't answer.
        """
        values = {"name": name, "key_id": key_id, "sealed": sealed, "updated_by": by}
        statement = insert(secrets).values(values).on_conflict_do_nothing()
        mine = sa.select(secrets.c.sealed).where(secrets.c.name == name)

        def write(connection: sa.Connection) -> bool:
            connection.execute(statement)
            # An attempt may have succeeded unnoticed. Sealing never yields the same bytes twice, so equal bytes are
            # ours.
            return bool(connection.execute(mine).scalar_one() == sealed)

        if not self._do(write, "keep a secret"):
            raise ConflictError(f"there is a secret {name!r} already; update it, or choose another name")

    def update(self, name: str, key_id: str, sealed: bytes, by: str) -> None:
        """Store a new value of a secret, which need not exist.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        changed = {"key_id": key_id, "sealed": sealed, "updated_by": by}
        statement = (
            insert(secrets)
            .values(name=name, **changed)
            .on_conflict_do_update(
                index_elements=[secrets.c.name], set_={**changed, "updated_at": sa.func.clock_timestamp()}
            )
        )
        self._do(lambda connection: connection.execute(statement), "keep a secret")

    def delete(self, name: str) -> None:
        """Delete a secret.

        Raises:
            UnknownEntityError: There is none of this name.
            UnavailableError: Postgres doesn't answer.
        """
        statement = sa.delete(secrets).where(secrets.c.name == name)
        if not self._do(lambda connection: connection.execute(statement).rowcount, "forget a secret"):
            raise UnknownEntityError(f"there is no secret {name!r}")

    def reseal(self, opened: Callable[[SealedSecret], tuple[str, bytes]], key_id: str) -> int:
        """Seal all secrets anew that are sealed with another key than `key_id`, all or none; return how many.

        Raises:
            UnavailableError: Postgres doesn't answer, or a secret can't be opened.
        """

        def write(connection: sa.Connection) -> int:
            wanted = sa.select(*(secrets.c[name] for name in SealedSecret.__slots__))
            rows = connection.execute(wanted.where(secrets.c.key_id != key_id).with_for_update()).mappings().all()
            for row in rows:
                new_id, sealed = opened(SealedSecret(**row))
                connection.execute(
                    sa.update(secrets)
                    .where(secrets.c.name == row["name"])
                    .values(key_id=new_id, sealed=sealed, updated_at=sa.func.clock_timestamp())
                )
            return len(rows)

        return self._do(write, "seal the secrets anew")

    def _do(self, work: Callable[[sa.Connection], T], what: str) -> T:
        def run() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return retry_outages(run, what=what, timeout_seconds=self._timeout_seconds)
