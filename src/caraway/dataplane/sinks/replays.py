"""Changes that a system has refused, and that are sent again once it takes them.

A dead letter has the change as the sink made it. It is sent again only if the row that it made of its key is still the
row of this key: otherwise a later change has been sent, or will be, and the older one would undo it.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.topics.letter_reader import LetterReader, parse_id
from caraway.errors import InvalidInputError
from caraway.state.sink_replays import SinkReplays

# A position stores the number of the last dead letter that was sent again like the offset of a partition with this
# number. The partitions of a topic have numbers from 0 on.
REPLAYED = -1
# The most dead letters that are sent again at once.
AT_ONCE = 100
GONE = "left out: the dead letter is gone, since its change was refused again or its key was erased"
OUTDATED = "left out: a later change of this row was sent, or will be, and has what counts"

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class Again:
    """A change to be sent again, and its number; without a change the dead letter is gone."""

    number: int
    change: Change | None


class Asked(Protocol):
    """The dead letters of one sink whose changes are to be sent again (`QueuedReplays`)."""

    def after(self, number: int) -> Sequence[Again]:
        """Return the first ones behind a number, in order."""
        ...

    def note(self, outcomes: Mapping[int, str]) -> None:
        """Keep what became of changes, by their numbers."""
        ...

    def settle(self, number: int) -> None:
        """Keep that all up to a number are done, of which a server that ended may have noted nothing."""
        ...


class QueuedReplays:
    """The queue of one sink in Postgres, with the dead letters on their topic."""

    def __init__(self, letters: LetterReader, queue: SinkReplays, sink: str) -> None:
        """Prepare for the sink of this name."""
        self._letters, self._queue, self._sink = letters, queue, sink

    def after(self, number: int) -> Sequence[Again]:
        """Return the first ones behind a number; raises `UnavailableError` if Postgres or Kafka doesn't answer."""
        asked = self._queue.after(self._sink, number, AT_ONCE)
        return [Again(each.number, self._change(each.letter)) for each in asked]

    def note(self, outcomes: Mapping[int, str]) -> None:
        """Keep what became of changes; raises `UnavailableError` if Postgres doesn't answer."""
        self._queue.note(self._sink, outcomes)

    def settle(self, number: int) -> None:
        """Keep that all up to a number are done; raises `UnavailableError` if Postgres doesn't answer."""
        self._queue.settle(self._sink, number)

    def _change(self, letter: str) -> Change | None:
        found = self._letters.at(*parse_id(letter))
        text = None if found is None else found.body.get("change")
        try:
            return decoded(text) if isinstance(text, str) else None
        except InvalidInputError:
            return None


def encoded(change: Change) -> str:
    """Return a change as a text for its dead letter."""
    rows = [None if row is None else [row.time_us, row.values] for row in (change.before, change.after)]
    return b64encode(_ENCODE([change.key, *rows, change.time_us, change.partition, change.offset])).decode()


def decoded(text: str) -> Change:
    """Return the change that a dead letter has. Raises `InvalidInputError` if it isn't one."""
    try:
        key, before, after, time_us, partition, offset = _DECODE(b64decode(text, validate=True))
        rows = [None if row is None else Row(row[0], tuple(row[1])) for row in (before, after)]
    except (ValueError, TypeError, LookupError, msgspec.MsgspecError) as error:
        raise InvalidInputError("the dead letter has no change") from error
    return Change(key, rows[0], rows[1], time_us, partition, offset)
