"""Secrets as Postgres stores them, sealed, and as a process uses them: sealed in memory, opened when they are used.

Opening a secret takes the deployment's key (`caraway.process.secrets.keyring`).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import ConflictError, UnknownEntityError
from caraway.graph.secrets.rules import NAME, checked_name, checked_value
from caraway.process.recurring import Recurring
from caraway.process.secrets.keyring import Keyring, add_key, open_keyring
from caraway.process.secrets.port import SecretPort, open_port
from caraway.state.database import TIMEOUT_SECONDS, in_transaction
from caraway.state.tables import secrets

# Seconds between two looks of the engine at the secrets in Postgres, so that the engine sees a changed secret after at
# most this time. While Postgres is unreachable, the engine uses the secrets that it read last.
INTERVAL_SECONDS = 5.0

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


_COLUMNS = tuple(secrets.c[name] for name in SealedSecret.__slots__)


class SecretStore:
    """All secrets, sealed and in memory, so that no query waits for Postgres. Thread safe.

    Every operation may be repeated, and raises UnavailableError if Postgres doesn't answer.
    """

    def __init__(self, engine: sa.Engine, keyring: Keyring, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Read through `engine` (`database.connect`), and open with `keyring`; `refresh` reads for the first time.

        Outages up to `timeout_seconds` are retried.
        """
        self._engine = engine
        self._keyring = keyring
        self._timeout_seconds = timeout_seconds
        # The time of the last change of each secret. The newest of them isn't enough to notice a change: a transaction
        # that was begun earlier may be committed later.
        self._changed: Mapping[str, datetime] | None = None
        self._known: Mapping[str, SealedSecret] | None = None
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Read the secrets again if they have changed; if Postgres doesn't answer, those read last go on being used."""
        wanted = sa.select(*_COLUMNS).order_by(secrets.c.name)

        def read(connection: sa.Connection) -> None:
            times = connection.execute(sa.select(secrets.c.name, secrets.c.updated_at))
            changed = {row.name: row.updated_at for row in times}
            if changed != self._changed:
                found = connection.execute(wanted).mappings()
                self._known = {row["name"]: SealedSecret(**row) for row in found}
                self._changed = changed

        with self._refreshing:
            self._do(read, "read the secrets")

    def get(self, name: str) -> str:
        """Return the value of a secret.

        Raises:
            UnknownEntityError: There is no secret of this name.
            UnavailableError: Postgres has never answered yet, or the secret can't be opened.
        """
        if self._known is None:
            self.refresh()
        found = (self._known or {}).get(name)
        if found is None:
            raise UnknownEntityError(f"there is no secret {name[:200]!r}; `caraway secrets list` names those that are")
        return self._ring(found.key_id).open(name, found.key_id, found.sealed)

    def _ring(self, key_id: str) -> Keyring:
        """Return the keys, read again from their file if the wanted one isn't among them: it may be new."""
        if all(key.id != key_id for key in self._keyring.keys):
            self._keyring = open_keyring(self._keyring.path)
        return self._keyring

    def add(self, name: str, value: str, by: str) -> None:
        """Store a new secret.

        Raises:
            InvalidInputError: The name or the value isn't possible.
            ConflictError: A secret of this name exists.
        """
        values = self._values(name, value, by)
        statement = insert(secrets).values(values).on_conflict_do_nothing()
        mine = sa.select(secrets.c.sealed).where(secrets.c.name == name)

        def write(connection: sa.Connection) -> bool:
            connection.execute(statement)
            # An earlier attempt of this call may have succeeded although its answer was lost. Sealing never yields the
            # same bytes twice, so equal bytes were written by this call.
            return bool(connection.execute(mine).scalar_one() == values["sealed"])

        if not self._do(write, "keep a secret"):
            raise ConflictError(f"there is a secret {name!r} already; update it, or choose another name")
        self.refresh()

    def update(self, name: str, value: str, by: str) -> None:
        """Store a new value of a secret, which need not exist.

        Raises `InvalidInputError` if the name or the value isn't possible.
        """
        values = self._values(name, value, by)
        statement = (
            insert(secrets)
            .values(values)
            .on_conflict_do_update(
                index_elements=[secrets.c.name], set_={**values, "updated_at": sa.func.clock_timestamp()}
            )
        )
        self._do(lambda connection: connection.execute(statement), "keep a secret")
        self.refresh()

    def delete(self, name: str) -> None:
        """Delete a secret. Raises `UnknownEntityError` if there is no secret of this name."""
        statement = sa.delete(secrets).where(secrets.c.name == name)
        # A name that no secret may have isn't sent to Postgres, which refuses texts with a NUL character with an error
        # of its own.
        if not NAME.fullmatch(name) or not self._do(
            lambda connection: connection.execute(statement).rowcount, "forget a secret"
        ):
            raise UnknownEntityError(f"there is no secret {name[:200]!r}")
        self.refresh()

    def rotate(self) -> int:
        """Create a new key, and seal all secrets anew with it, all or none; return how many.

        The old key stays in the file, because the hashes of erased keys were made with it. If Postgres doesn't answer,
        the new key exists all the same, and the next attempt may use it.

        Raises:
            UnavailableError: Postgres doesn't answer, or a secret can't be opened.
        """
        keyring = self._keyring = add_key(self._keyring)

        def write(connection: sa.Connection) -> int:
            wanted = sa.select(*_COLUMNS).where(secrets.c.key_id != keyring.current.id).with_for_update()
            rows = connection.execute(wanted).mappings().all()
            for row in rows:
                name = row["name"]
                new_id, sealed = keyring.seal(name, keyring.open(name, row["key_id"], row["sealed"]))
                connection.execute(
                    sa.update(secrets)
                    .where(secrets.c.name == name)
                    .values(key_id=new_id, sealed=sealed, updated_at=sa.func.clock_timestamp())
                )
            return len(rows)

        return self._do(write, "seal the secrets anew")

    def names(self) -> Mapping[str, SealedSecret]:
        """Return all secrets by name, sealed."""
        self.refresh()
        return self._known or {}

    def _values(self, name: str, value: str, by: str) -> dict[str, object]:
        key_id, sealed = self._keyring.seal(checked_name(name), checked_value(value))
        return {"name": name, "key_id": key_id, "sealed": sealed, "updated_by": by}

    def _do(self, work: Callable[[sa.Connection], T], what: str) -> T:
        return in_transaction(self._engine, work, what=what, timeout_seconds=self._timeout_seconds)


def hand_out(store: SecretStore, *, local: bool, host: str) -> SecretPort:
    """Open a port at which the functions of this engine's jobs read secrets; keep the store up to date in a thread.

    Args:
        store: The secrets.
        local: True if Spark runs on this machine only.
        host: The name of this machine by which workers on others reach it.
    """
    Recurring("secrets", store.refresh, INTERVAL_SECONDS, at_once=True).start()
    return open_port(store.get, "127.0.0.1" if local else host)
