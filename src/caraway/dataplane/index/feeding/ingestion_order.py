"""The division of messages by the time of their ingestion, for indexes that emit rows to a topic.

A job or an offline query that asks for what was known at a time must find the rows of an aggregate as they were then
(docs/inside/records.md). So rows are emitted once for each ingestion time among the messages of a read, and not once
for all.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from caraway.dataplane.topics.blocks import is_block, split
from caraway.dataplane.topics.reader import Message
from caraway.errors import InvalidInputError

_Raw = msgspec.Raw
# The ingestion time is the fifth item of a record; the items behind it are skipped without decoding.
_DECODE = msgspec.msgpack.Decoder(tuple[int, int, int, int, int, _Raw, _Raw, _Raw]).decode


def by_ingestion(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages of each ingestion time, in the order of these times.

    Messages of one partition stay in the order of their offsets: one that is ingested before its predecessor, or can't
    be decoded, comes with it.
    """
    reached: dict[int, int] = {}
    dated = []
    for message in messages:
        known_us = reached[message[2]] = max(_ingested(message), reached.get(message[2], 0))
        dated.append((known_us, message))
    dated.sort(key=itemgetter(0))
    return [[message for _, message in some] for _, some in groupby(dated, key=itemgetter(0))]


def _ingested(message: Message) -> int:
    """Return the ingestion time of a message's records, which came together; 0 of a message without records."""
    value = message[1] or b""
    try:
        return _DECODE(split(value)[-1] if is_block(value) else value)[4]
    except (InvalidInputError, msgspec.MsgspecError):
        return 0
