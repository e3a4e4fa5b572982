"""The queue of dead letters whose changes a sink is to send again, and what became of each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.database import Store
from caraway.state.tables import sink_replays

# The outcome of a change that was sent. Any other outcome says why it wasn't.
SENT = "sent"
# The outcome of a change whose server ended before it noted whether the change was sent.
UNKNOWN = "done by a server that ended before it could note whether the change was sent or left out"


@dataclass(frozen=True, slots=True)
class AskedReplay:
    """A dead letter whose change is to be sent again, and its number, which grows within a sink."""

    number: int
    letter: str


class SinkReplays(Store):
    """Writes and reads the queue. Thread safe. All methods raise `UnavailableError` if Postgres doesn't answer."""

    def ask(self, sink: str, place: str, letter: str) -> bool:
        """Ask for a change to be sent again; return False if it was sent again before, or is waiting for that.

        If it isn't known what became of it, only another dead letter of it can be asked for: one of a later refusal.

        Args:
            sink: The name of the sink.
            place: The partition and offset of the change, as text.
            letter: The id of the dead letter.
        """

        def run(connection: sa.Connection) -> bool:
            # Under this lock the transactions of a sink run one after the other, so that no number becomes visible
            # after a greater one: `after` would never return it.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(sink, 0))))
            known = (sink_replays.c.sink == sink) & (sink_replays.c.place == place)
            failed = sink_replays.c.outcome.not_in([SENT, UNKNOWN]) | (
                (sink_replays.c.outcome == UNKNOWN) & (sink_replays.c.letter != letter)
            )
            connection.execute(sa.delete(sink_replays).where(known & failed))
            row = insert(sink_replays).values(sink=sink, place=place, letter=letter).on_conflict_do_nothing()
            return connection.execute(row.returning(sink_replays.c.number)).one_or_none() is not None

        return self._in_transaction(run, "ask a sink to send a change again")

    def outcome(self, sink: str, place: str) -> str | None:
        """Return what became of a change; None if the sink hasn't come to it, or nobody has asked."""
        query = sa.select(sink_replays.c.outcome).where(sink_replays.c.sink == sink, sink_replays.c.place == place)
        found: str | None = self._in_transaction(lambda c: c.execute(query).scalar(), "read what a sink sent again")
        return found

    def after(self, sink: str, number: int, count: int) -> Sequence[AskedReplay]:
        """Return the first dead letters of a sink behind a number, at most `count`."""
        behind = (sink_replays.c.sink == sink) & (sink_replays.c.number > number)
        query = sa.select(sink_replays.c.number, sink_replays.c.letter).where(behind)
        query = query.order_by(sink_replays.c.number).limit(count)

        def read(connection: sa.Connection) -> Sequence[AskedReplay]:
            return [AskedReplay(row.number, row.letter) for row in connection.execute(query)]

        return self._in_transaction(read, "read what a sink is to send again")

    def note(self, sink: str, outcomes: Mapping[int, str]) -> None:
        """Note what became of dead letters of a sink, by their numbers."""

        def run(connection: sa.Connection) -> None:
            for number, outcome in outcomes.items():
                one = (sink_replays.c.sink == sink) & (sink_replays.c.number == number)
                connection.execute(sa.update(sink_replays).where(one).values(outcome=outcome))

        self._in_transaction(run, "note what a sink sent again")

    def settle(self, sink: str, number: int) -> None:
        """Note that a sink is done with its dead letters up to a number, of which some may have no outcome."""
        behind = (sink_replays.c.sink == sink) & (sink_replays.c.number <= number) & sink_replays.c.outcome.is_(None)
        change = sa.update(sink_replays).where(behind).values(outcome=UNKNOWN)
        self._in_transaction(lambda connection: connection.execute(change), "note what a sink sent again")

    def forget(self, sinks: Collection[str]) -> None:
        """Remove the dead letters of sinks that are gone for good."""
        gone = sa.delete(sink_replays).where(sink_replays.c.sink.in_(sinks))
        if sinks:
            self._in_transaction(lambda connection: connection.execute(gone), "forget what sinks sent again")
