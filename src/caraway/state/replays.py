"""The record of dead letters that were sent again: a claim before the writing, a mark once the row is durable."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import ConflictError
from caraway.state.database import Store
from caraway.state.tables import replays

NOW = sa.func.clock_timestamp()
# How long a claim excludes other attempts. A server gives up writing a row after some 10 s, its producer's delivery
# timeout, so the claimed attempt has ended by then.
ATTEMPT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayClaim:
    """The right to send a dead letter again.

    Attributes:
        elapsed: The time since the first attempt; None if this is the first.
        done_at: The time at which the row became durable, if it was sent before; nothing is left to do then.
    """

    elapsed: timedelta | None
    done_at: datetime | None


class Replays(Store):
    """Writes and reads the record of dead letters that were sent again. Thread safe."""

    def claim(self, dead_letter: str, account: str) -> ReplayClaim:
        """Claim a dead letter before it is sent again.

        Raises `ConflictError` if another attempt began less than a minute ago and hasn't ended.
        """

        def run(connection: sa.Connection) -> ReplayClaim:
            first = insert(replays).values(letter=dead_letter, account=account).on_conflict_do_nothing()
            # Postgres returns the row only if it was inserted, so a row means that this is the first attempt.
            # `rowcount` doesn't show it: it is -1 in either case.
            if connection.execute(first.returning(replays.c.letter)).one_or_none() is not None:
                return ReplayClaim(elapsed=None, done_at=None)
            ages = (NOW - replays.c.begun_at).label("elapsed"), (NOW - replays.c.tried_at).label("tried")
            query = sa.select(replays.c.done_at, *ages).where(replays.c.letter == dead_letter).with_for_update()
            known = connection.execute(query).one()
            if known.done_at is None:
                if known.tried < ATTEMPT:
                    raise ConflictError(
                        f"dead letter {dead_letter} is being sent again since {known.tried.total_seconds():.0f} s; "
                        f"ask again {ATTEMPT.total_seconds():.0f} s after that"
                    )
                connection.execute(sa.update(replays).where(replays.c.letter == dead_letter).values(tried_at=NOW))
            return ReplayClaim(elapsed=known.elapsed, done_at=known.done_at)

        return self._in_transaction(run, "note that a dead letter is sent again")

    def done(self, dead_letter: str) -> None:
        """Note that the row of a dead letter is durable."""
        done = sa.update(replays).where(replays.c.letter == dead_letter).values(done_at=NOW)
        self._in_transaction(lambda connection: connection.execute(done), "note that a dead letter was sent again")

    def of(self, dead_letters: Collection[str]) -> Mapping[str, datetime]:
        """Return the time at which the row of each of the dead letters became durable, if it was sent again."""
        query = sa.select(replays.c.letter, replays.c.done_at)
        query = query.where(replays.c.letter.in_(dead_letters), replays.c.done_at.is_not(None))

        def read(connection: sa.Connection) -> Mapping[str, datetime]:
            return {row.letter: row.done_at for row in connection.execute(query)}

        return self._in_transaction(read, "read which dead letters were sent again")
