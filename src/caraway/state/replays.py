"""The record of dead letters that were sent again: a claim before the row is written, and a mark when it is durable."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import ConflictError
from caraway.state.database import TIMEOUT_SECONDS, in_transaction
from caraway.state.tables import metadata

NOW = sa.func.clock_timestamp()
# How long a claim excludes other attempts. A server that writes a row gives up after some 10 s (its delivery timeout),
# so by then no attempt is under way.
ATTEMPT = timedelta(seconds=60)

dead_letter_replays = sa.Table(
    "dead_letter_replays",
    metadata,
    sa.Column("letter", sa.Text, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    # `tried_at` is the newest attempt. `begun_at` is the first one; the topic is searched for the row back to it.
    sa.Column("tried_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    sa.Column("done_at", sa.DateTime(timezone=True)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayClaim:
    """The right to send a dead letter again.

    Attributes:
        elapsed: The time since the first attempt; None if this is the first.
        done_at: The time at which the row became durable, if it was sent before; nothing is left to do then.
    """

    elapsed: timedelta | None
    done_at: datetime | None


class Replays:
    """Writes and reads the record of dead letters that were sent again. Thread safe."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Work through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def claim(self, dead_letter: str, account: str) -> ReplayClaim:
        """Claim a dead letter before it is sent again.

        Raises `ConflictError` if another attempt began less than a minute ago and hasn't ended.
        """

        def run(connection: sa.Connection) -> ReplayClaim:
            table = dead_letter_replays
            first = insert(table).values(letter=dead_letter, account=account).on_conflict_do_nothing()
            # `rowcount` is no help: it is -1 here with and without an existing row.
            if connection.execute(first.returning(table.c.letter)).one_or_none() is not None:
                return ReplayClaim(elapsed=None, done_at=None)
            known = connection.execute(
                sa.select(
                    table.c.done_at,
                    (NOW - table.c.begun_at).label("elapsed"),
                    (NOW - table.c.tried_at).label("tried"),
                )
                .where(table.c.letter == dead_letter)
                .with_for_update()
            ).one()
            if known.done_at is None:
                if known.tried < ATTEMPT:
                    raise ConflictError(
                        f"dead letter {dead_letter} is being sent again since {known.tried.total_seconds():.0f} s; "
                        f"ask again {ATTEMPT.total_seconds():.0f} s after that"
                    )
                connection.execute(sa.update(table).where(table.c.letter == dead_letter).values(tried_at=NOW))
            return ReplayClaim(elapsed=known.elapsed, done_at=known.done_at)

        what = "note that a dead letter is sent again"
        return in_transaction(self._engine, run, what=what, timeout_seconds=self._timeout_seconds)

    def done(self, dead_letter: str) -> None:
        """Note that the row of a dead letter is durable."""
        table = dead_letter_replays

        done = sa.update(table).where(table.c.letter == dead_letter).values(done_at=NOW)
        what = "note that a dead letter was sent again"
        in_transaction(self._engine, lambda it: it.execute(done), what=what, timeout_seconds=self._timeout_seconds)

    def of(self, dead_letters: Collection[str]) -> Mapping[str, datetime]:
        """Return the time at which the row of each of the dead letters became durable, if it was sent again."""
        table = dead_letter_replays

        query = sa.select(table.c.letter, table.c.done_at)
        query = query.where(table.c.letter.in_(dead_letters), table.c.done_at.is_not(None))

        def read(connection: sa.Connection) -> Mapping[str, datetime]:
            return {row.letter: row.done_at for row in connection.execute(query)}

        what = "read which dead letters were sent again"
        return in_transaction(self._engine, read, what=what, timeout_seconds=self._timeout_seconds)
