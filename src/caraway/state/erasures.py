"""The record of erased keys: the account and the time of each request, and the places that have removed the key."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import definition_of
from caraway.state.announcements import lock_erasures
from caraway.state.database import TIMEOUT_SECONDS, in_transaction
from caraway.state.tables import branches, erasure_places, erasures

READ_AT_ONCE = 10_000


def is_between(reached: str, missing: str) -> sa.ColumnElement[bool]:
    """Return the condition that an erasure downstream has reached one place, but not another one."""

    def at(place: str) -> sa.ColumnElement[bool]:
        return sa.exists().where(erasure_places.c.erasure_id == erasures.c.id, erasure_places.c.place == place)

    return sa.and_(erasures.c.downstream, at(reached), ~at(missing))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedKey:
    """A key whose erasure was requested, as a hash.

    `topic` is that of the dataset; the key is erased on all topics of its definition, also on later ones. `by_key` is
    false if a column isn't a key of the dataset. If `downstream` is set, the topic is emptied of the rows, and what is
    computed from them is computed again.
    """

    request: str
    branch: str
    dataset: str
    topic: str
    columns: tuple[str, ...]
    key_id: str
    digest: bytes
    account: str
    token_id: str
    by_key: bool = True
    downstream: bool = False


def erasure_by(key: ErasedKey) -> Erasure:
    """Return the content of the record that announces an erased key on a topic."""
    return Erasure(key.columns, key.key_id, key.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecord:
    """An erased key with its number, and the places that have removed it.

    `recorded_at` is the time by which the record of the erasure was on the topic. `cut` has the offsets behind which
    the topic has no erased row, None as long as they aren't known.
    """

    id: int
    key: ErasedKey
    asked_at: datetime
    recorded_at: datetime | None
    places: tuple[tuple[str, datetime], ...] = ()
    cut: Mapping[int, int] | None = None

    def left(self, place: str) -> datetime | None:
        """Return when a place was freed of the key, None if it may still have it."""
        return dict(self.places).get(place)


class ErasureLog:
    """Writes and reads the record of erased keys. Thread safe; every operation may be repeated."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Work through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def add(self, keys: Sequence[ErasedKey]) -> int:
        """Write down keys to be erased; return how many of them weren't there before."""
        # A request may have a key twice, but Postgres refuses a statement that writes a row twice.
        once = {(key.topic, key.columns, key.key_id, key.digest): key for key in keys}.values()
        rows = [asdict(key) | {"columns": list(key.columns), "definition": definition_of(key.topic)} for key in once]
        new = insert(erasures)
        # A key may be in the table already, because it was erased in its dataset only. Its row is changed if the key is
        # now to be erased downstream, too.
        statement = new.on_conflict_do_update(
            constraint="erasures_once",
            set_={"downstream": sa.true()},
            where=sa.and_(new.excluded.downstream, sa.not_(erasures.c.downstream)),
        ).returning(erasures.c.id)

        def write(connection: sa.Connection) -> int:
            lock_erasures(connection)
            return len(connection.execute(statement, rows).all())

        return self._write(write, "write down what is to be erased") if rows else 0

    def since(self, number: int) -> list[ErasureRecord]:
        """Return the erased keys with greater numbers, in their order; if there are many, only the first of them."""
        return self._read(sa.select(erasures).where(erasures.c.id > number).order_by(erasures.c.id).limit(READ_AT_ONCE))

    def unrecorded(self) -> list[ErasureRecord]:
        """Return the erased keys whose erasure isn't on all topics yet that branches need of their definition."""
        query = sa.select(erasures).where(erasures.c.recorded_at.is_(None))
        return self._read(query.order_by(erasures.c.id).limit(READ_AT_ONCE))

    def undone(self, place: str, *, downstream: bool = True) -> list[int]:
        """Return the numbers of the erased keys that a place (an index of a server, the archive) may still hold.

        If `downstream` is false, erasures downstream are left out.
        """
        done = sa.select(erasure_places.c.erasure_id).where(erasure_places.c.place == place)
        query = sa.select(erasures).where(erasures.c.id.not_in(done)).order_by(erasures.c.id).limit(READ_AT_ONCE)
        if not downstream:
            query = query.where(sa.not_(erasures.c.downstream))
        return [record.id for record in self._read(query)]

    def downstream(self, topics: Collection[str], *, without: str) -> list[ErasureRecord]:
        """Return the erasures downstream on some topics that haven't reached a place, with those that they have."""
        done = sa.select(erasure_places.c.erasure_id).where(erasure_places.c.place == without)
        query = sa.select(erasures).where(
            erasures.c.downstream, erasures.c.topic.in_(topics), erasures.c.id.not_in(done)
        )
        return self._read(query.order_by(erasures.c.id).limit(READ_AT_ONCE), places=True)

    def between(self, reached: str, missing: str) -> list[ErasureRecord]:
        """Return the erasures downstream that have reached one place, but not another one."""
        query = sa.select(erasures).where(is_between(reached, missing))
        return self._read(query.order_by(erasures.c.id).limit(READ_AT_ONCE))

    def settled(self, topics: Collection[str], age: timedelta) -> list[ErasureRecord]:
        """Return the erasures downstream on some topics that are this old, and whose topic isn't cut yet."""
        query = sa.select(erasures).where(
            erasures.c.downstream,
            erasures.c.cut.is_(None),
            erasures.c.topic.in_(topics),
            erasures.c.asked_at < sa.func.clock_timestamp() - age,
        )
        return self._read(query.order_by(erasures.c.id).limit(READ_AT_ONCE))

    def cut(self, numbers: Collection[int], offsets: Mapping[int, int]) -> None:
        """Note the offsets behind which a topic has no row of the erasures with these numbers."""
        cut = {str(partition): offset for partition, offset in offsets.items()}
        statement = sa.update(erasures).where(erasures.c.id.in_(numbers), erasures.c.cut.is_(None)).values(cut=cut)
        self._write(lambda connection: connection.execute(statement).rowcount, "note where a topic is cut")

    def of(self, dataset: str, branch: str, *, limit: int) -> list[ErasureRecord]:
        """Return the newest erased keys of a dataset requested on a branch, with the places that removed them."""
        query = sa.select(erasures).where(erasures.c.dataset == dataset, erasures.c.branch == branch)
        return self._read(query.order_by(erasures.c.id.desc()).limit(limit), places=True)

    def recorded(self, numbers: Collection[int], commits: Collection[str]) -> None:
        """Note that the erasures with these numbers are on the topics of some commits.

        Nothing is noted if a branch has moved to another commit meanwhile, since that may have made further topics.
        """
        others = sa.exists().where(branches.c.head.is_not(None), branches.c.head.not_in(commits))
        statement = (
            sa.update(erasures)
            .where(erasures.c.id.in_(numbers), erasures.c.recorded_at.is_(None), ~others)
            .values(recorded_at=sa.func.clock_timestamp())
        )

        def write(connection: sa.Connection) -> int:
            # A commit with further topics holds this lock until its end. So either it has ended, and `others` finds its
            # head, or it sets `recorded_at` to null again later.
            lock_erasures(connection)
            return connection.execute(statement).rowcount

        self._write(write, "note what is on the topics")

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


_FIELDS = (
    "request",
    "branch",
    "dataset",
    "topic",
    "key_id",
    "digest",
    "account",
    "token_id",
    "by_key",
    "downstream",
)


def _record(row: sa.RowMapping, places: tuple[tuple[str, datetime], ...]) -> ErasureRecord:
    key = ErasedKey(columns=tuple(row["columns"]), **{name: row[name] for name in _FIELDS})
    cut = row["cut"]
    return ErasureRecord(
        id=row["id"],
        key=key,
        asked_at=row["asked_at"],
        recorded_at=row["recorded_at"],
        places=places,
        cut=None if cut is None else {int(partition): offset for partition, offset in cut.items()},
    )
