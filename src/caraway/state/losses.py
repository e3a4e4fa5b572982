"""The topics that have lost records which somebody had read, as readers in all processes note them for the server."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.database import Store
from caraway.state.tables import topic_losses

NOW = sa.func.clock_timestamp()
# A loss is shown for this long after it was last noticed.
SHOWN = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A topic that lacks records which somebody had read.

    Attributes:
        topic: The topic.
        follower: The name of the sink, check or job that had read them, or that of the kind if there is only one.
        kind: The kind of the follower: "index", "archive", "sink", "watch" or "job".
        text: The places, what the follower does, and the remedy.
    """

    topic: str
    follower: str
    kind: str
    text: str


class Losses(Store):
    """Writes and reads losses. Thread safe. All methods raise `UnavailableError` if Postgres doesn't answer."""

    def note(self, loss: Loss) -> None:
        """Note a loss in place of an earlier one of the same follower on the same topic."""
        values = {"kind": loss.kind, "text": loss.text, "found_at": NOW}
        row = insert(topic_losses).values(topic=loss.topic, follower=loss.follower, **values)
        keys = [topic_losses.c.topic, topic_losses.c.follower]
        change = row.on_conflict_do_update(index_elements=keys, set_=values)
        self._in_transaction(lambda connection: connection.execute(change), "note records that a topic has lost")

    def recent(self) -> Sequence[Loss]:
        """Return the losses of the last day, in the order in which they were noticed, and remove older ones."""
        table = topic_losses
        query = sa.select(table).where(table.c.found_at > NOW - SHOWN).order_by(table.c.found_at, table.c.follower)

        def read(connection: sa.Connection) -> Sequence[Loss]:
            connection.execute(sa.delete(table).where(table.c.found_at <= NOW - SHOWN))
            return [
                Loss(topic=row.topic, follower=row.follower, kind=row.kind, text=row.text)
                for row in connection.execute(query)
            ]

        return self._in_transaction(read, "read which records topics have lost")
