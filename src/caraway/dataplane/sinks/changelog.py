"""The step from messages of a dataset's topic to changes of its rows."""

from collections.abc import Sequence
from typing import Any

from caraway.dataplane.sinks.changes import Change
from caraway.dataplane.sinks.table_state import TableState
from caraway.dataplane.topics.blocks import parts_of
from caraway.dataplane.topics.codec import Record, RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, HidesRecord, decode_erasure, is_erasure
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.left_out import LeaveOut, LeftOut
from caraway.dataplane.topics.reader import Message
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import SinkPlan

# The first byte of the Kafka keys of records without a row: markers, arrivals and erasures (docs/inside/records.md).
CONTROL = b"\xc1"
# Consumers identify a change by its partition and offset alone, and a message of a dataset without keys may be a block
# of many records. So the offset of a change is the message's offset times this number, plus the record's place in the
# block. The place is always smaller than this number, since a block's length has 16 bits.
RECORDS = 1 << 16


class Changelog:
    """Makes changes of messages, by the state of the table before them."""

    def __init__(self, plan: SinkPlan, state: TableState, erased: ErasedKeys, leave_out: LeaveOut) -> None:
        """Prepare.

        Args:
            plan: The sink.
            state: The rows before the first message.
            erased: The erased keys. Their rows are neither sent nor kept.
            leave_out: Is called with records that can't be read.
        """
        self._dataset, self._leave_out = plan.dataset.name, leave_out
        self._topic = plan.topic
        self._codec = RecordCodec(plan.topic.schema)
        self._keyed = bool(plan.topic.schema.keys)
        self._since_us = plan.sink.since_us
        self._until_us = plan.sink.until_us
        self._state = state
        self._erased = erased

    def changes(self, messages: Sequence[Message]) -> list[Change]:
        """Return the changes that messages make, in order, and put these into the state.

        Records outside of the sink's `since` and `until` are left out.

        Raises:
            UnavailableError: The state can't be used, some erased keys can't be compared, or a record that can't be
                read can't be kept as a dead letter.
        """
        hides = self._hides()
        found: list[Change] = []
        for key, value, partition, offset in messages:
            if key is not None and key[:1] == CONTROL:
                if is_erasure(key):
                    hides = self._erase(value) or hides
                continue
            for number, part in enumerate(parts_of(value or b"") if key is None else [value or b""]):
                position = position_id(offset, partition, number)
                record = self._record(part, position)
                if record is None or not self._is_wanted(record) or _is_hidden(hides, key, record.row):
                    continue
                record_id = record.id or position
                change = self._state.apply(
                    key=key if key is not None else record_id,
                    record_id=record_id,
                    rev=record.rev or b"",
                    op=record.op,
                    time_us=record.time,
                    row=record.row,
                    partition=partition,
                    offset=offset if self._keyed else offset * RECORDS + number,
                )
                if change is not None:
                    found.append(change)
        return found

    def _record(self, value: bytes, position: bytes) -> Record | None:
        try:
            return self._codec.decode_value(value)
        except InvalidInputError as error:
            self._leave_out(self._dataset, self._topic.name, [LeftOut(position, str(error))])
            return None

    def _is_wanted(self, record: Record) -> bool:
        since, until = self._since_us, self._until_us
        return (since is None or record.time >= since) and (until is None or record.time < until)

    def _hides(self) -> HidesRecord | None:
        return self._erased.hides_record(self._topic.name, self._topic.schema)

    def _erase(self, value: bytes | None) -> HidesRecord | None:
        """Remove the rows of an erased key from the state. The copy in the other system is its owner's to erase."""
        try:
            erasure = decode_erasure(value)
        except InvalidInputError:
            return None
        self._erased.add(self._topic.name, [erasure])
        hides = self._hides()
        if hides is not None:
            self._state.forget(lambda key, row: _is_hidden(hides, key, row))
        return hides


def _is_hidden(hides: HidesRecord | None, key: bytes | None, row: list[Any] | None) -> bool:
    if hides is None:
        return False
    by_key = key is not None and hides.key is not None and hides.key(key)
    return by_key or (row is not None and hides.row is not None and hides.row(row))
