"""The record of erased keys: the account and the time of each request, and the places that have removed the key."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from caraway.erasure.keys import Erasure
from caraway.state.database import TIMEOUT_SECONDS, in_transaction
from caraway.state.tables import metadata

# The key of an advisory lock in Postgres: any number that no other lock uses. Under this lock erasures get their
# numbers in the order in which they commit, so a reader that has read up to a number has missed none.
LOCK_KEY = int.from_bytes(b"erasure")
READ_AT_ONCE = 10_000

# A row for each key and topic. The key is stored as a hash only.
erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("columns", ARRAY(sa.Text), nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("token_id", sa.Text, nullable=False),
    sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    sa.Column("recorded_at", sa.DateTime(timezone=True)),
    sa.UniqueConstraint("topic", "columns", "key_id", "digest", name="erasures_once"),
    sa.Index("erasures_unrecorded", "id", postgresql_where=sa.text("recorded_at IS NULL")),
)

# The places that have removed a key: the indexes of servers, the archive.
erasure_places = sa.Table(
    "erasure_places",
    metadata,
    sa.Column("erasure_id", sa.BigInteger, sa.ForeignKey("erasures.id"), primary_key=True),
    sa.Column("place", sa.Text, primary_key=True),
    sa.Column("done_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedKey:
    """A key whose erasure was requested, as a hash. `topic` is the scope, which for most datasets is their topic."""

    request: str
    branch: str
    dataset: str
    topic: str
    columns: tuple[str, ...]
    key_id: str
    digest: bytes
    account: str
    token_id: str


def erasure_by(key: ErasedKey) -> Erasure:
    """Return the content of the record that announces an erased key on a topic."""
    return Erasure(key.columns, key.key_id, key.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecord:
    """An erased key with its number, and the places that have removed it.

    `recorded_at` is the time by which the record of the erasure was on the topic.
    """

    id: int
    key: ErasedKey
    asked_at: datetime
    recorded_at: datetime | None
    places: tuple[tuple[str, datetime], ...] = ()


class ErasureLog:
    """Writes and reads the record of erased keys. Thread safe; every operation may be repeated."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Work through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def add(self, keys: Sequence[ErasedKey]) -> int:
        """Write down keys to be erased; return how many of them weren't there before."""
        rows = [asdict(key) | {"columns": list(key.columns)} for key in keys]
        statement = insert(erasures).on_conflict_do_nothing(constraint="erasures_once").returning(erasures.c.id)

        def write(connection: sa.Connection) -> int:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
            return len(connection.execute(statement, rows).all())

        return self._write(write, "write down what is to be erased") if rows else 0

    def since(self, number: int) -> list[ErasureRecord]:
        """Return the erased keys with greater numbers, in their order; if there are many, only the first of them."""
        return self._read(sa.select(erasures).where(erasures.c.id > number).order_by(erasures.c.id).limit(READ_AT_ONCE))

    def unrecorded(self) -> list[ErasureRecord]:
        """Return the erased keys whose erasure isn't on their topic yet."""
        query = sa.select(erasures).where(erasures.c.recorded_at.is_(None))
        return self._read(query.order_by(erasures.c.id).limit(READ_AT_ONCE))

    def undone(self, place: str) -> list[int]:
        """Return the numbers of the erased keys that a place (an index of a server, the archive) may still hold."""
        done = sa.select(erasure_places.c.erasure_id).where(erasure_places.c.place == place)
        query = sa.select(erasures).where(erasures.c.id.not_in(done)).order_by(erasures.c.id).limit(READ_AT_ONCE)
        return [record.id for record in self._read(query)]

    def of(self, dataset: str, branch: str, *, limit: int) -> list[ErasureRecord]:
        """Return the newest erased keys of a dataset requested on a branch, with the places that removed them."""
        query = sa.select(erasures).where(erasures.c.dataset == dataset, erasures.c.branch == branch)
        return self._read(query.order_by(erasures.c.id.desc()).limit(limit), places=True)

    def recorded(self, numbers: Collection[int]) -> None:
        """Note that the erasures with these numbers are on their topics."""
        statement = (
            sa.update(erasures)
            .where(erasures.c.id.in_(numbers), erasures.c.recorded_at.is_(None))
            .values(recorded_at=sa.func.clock_timestamp())
        )
        self._write(lambda connection: connection.execute(statement).rowcount, "note what is on the topics")

    def done(self, numbers: Collection[int], place: str) -> None:
        """Note that a place holds nothing any more of the keys with these numbers."""
        rows = [{"erasure_id": number, "place": place} for number in numbers]
        if rows:
            statement = insert(erasure_places).on_conflict_do_nothing()
            self._write(lambda connection: connection.execute(statement, rows).rowcount, "note what is erased")

    def _write(self, write: Callable[[sa.Connection], int], what: str) -> int:
        return in_transaction(self._engine, write, what=what, timeout_seconds=self._timeout_seconds)

    def _read(self, query: sa.Select[Any], *, places: bool = False) -> list[ErasureRecord]:
        def read(connection: sa.Connection) -> list[ErasureRecord]:
            rows = connection.execute(query).mappings().all()
            done: dict[int, list[tuple[str, datetime]]] = {}
            if places:
                wanted = erasure_places.c.erasure_id.in_([row["id"] for row in rows])
                found = sa.select(erasure_places).where(wanted).order_by(erasure_places.c.done_at)
                for row in connection.execute(found).mappings():
                    done.setdefault(row["erasure_id"], []).append((row["place"], row["done_at"]))
            return [_record(row, tuple(done.get(row["id"], ()))) for row in rows]

        return in_transaction(self._engine, read, what="read what is erased", timeout_seconds=self._timeout_seconds)


_FIELDS = ("request", "branch", "dataset", "topic", "key_id", "digest", "account", "token_id")


def _record(row: sa.RowMapping, places: tuple[tuple[str, datetime], ...]) -> ErasureRecord:
    key = ErasedKey(columns=tuple(row["columns"]), **{name: row[name] for name in _FIELDS})
    return ErasureRecord(id=row["id"], key=key, asked_at=row["asked_at"], recorded_at=row["recorded_at"], places=places)
