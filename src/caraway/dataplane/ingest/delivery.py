"""The items that are sent for the rows of a payload: records of datasets, and dead letters for rows that don't fit."""

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import orjson

from caraway.compute.rows.batches import Stage
from caraway.dataplane.ingest.marks import Marks
from caraway.dataplane.ingest.remarks import unknown_fields, with_meant
from caraway.dataplane.ingest.row_counts import RowCounts
from caraway.dataplane.ingest.table import Table
from caraway.dataplane.ingest.targets import Encoded, EncodedRecord, RowError, Span, Target
from caraway.dataplane.topics.blocks import block_of, blocks_of
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, KEY_BYTES, MAX_PAYLOAD
from caraway.dataplane.topics.erased_keys import ErasedKeys, HidesRecord
from caraway.dataplane.topics.producer import TopicItem

# The number of rows that are cast and encoded at a time. So many take some 2 ms, after which the event loop can serve
# other requests.
SLICE = 200


# The future of a write: one of any thread, or one of an event loop.
WriteFuture = Future[None] | asyncio.Future[None]


class AnyWriter(Protocol):
    """A writer of records, for any thread or for an event loop."""

    def write(self, topic: str, items: Sequence[TopicItem]) -> WriteFuture:
        """Send `items`; the future is done when they are durable."""
        ...


class Writer(AnyWriter, Protocol):
    """A writer of records for any thread (`caraway.dataplane.topics.producer.TopicWriter`)."""

    def write(self, topic: str, items: Sequence[TopicItem]) -> Future[None]:
        """Send `items`; the future is done when they are durable."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """The items to write for a slice of a payload, by topic, the reasons of refusals, and the span of event times."""

    items: Mapping[str, list[TopicItem]]
    errors: list[RowError]
    counts: RowCounts
    span: Span | None


class Deliverer:
    """Makes deliveries of the rows of one payload."""

    def __init__(
        self,
        targets: Sequence[Target],
        rows: Table,
        *,
        origin: Callable[[int], Mapping[str, object]],
        erased: ErasedKeys,
        marks: Marks | None = None,
    ) -> None:
        """Create the deliverer of a payload.

        Args:
            targets: All datasets that get the rows.
            rows: The payload.
            origin: Returns the fields of a dead letter that describe where a row came from.
            erased: The erased keys, whose rows are never written.
            marks: The marks of records; None if they have none.

        Raises:
            UnavailableError: Some erased keys can't be compared.
        """
        self._targets = targets
        self._rows = rows
        self._origin = origin
        self._erased = erased
        self._marks = marks
        hides = [(target, erased.hides_record(target.topic, target.schema)) for target in targets]
        self._hides = {target.topic: (target, of) for target, of in hides if of is not None}

    def deliver(self, target: Target, start: int, stop: int, now_us: int) -> Delivery:
        """Return what rows `start` to `stop` make for a dataset."""
        encoded = target.encode(self._rows, start, stop, now_us)
        records = encoded.records
        counts = self._counts(target, encoded, stop - start)
        if target.topic in self._hides:
            # Rows of erased keys count as accepted, so that a sender can't find out which keys were erased.
            records = _not_erased(records, *self._hides[target.topic])
        items = self._unkeyed(target, records) if not target.keys else self._keyed(target, records)
        # The answer and the dead letters have the same reasons.
        errors = with_meant(encoded.errors, self._unknown) if encoded.errors else []
        letters = self._letters(target, errors, now_us)
        return Delivery({target.topic: items, DEAD_LETTERS: letters}, errors, counts, encoded.span)

    @cached_property
    def _unknown(self) -> Sequence[str]:
        return unknown_fields(self._targets, self._rows)

    def _counts(self, target: Target, encoded: Encoded, read: int) -> RowCounts:
        """Return what becomes of the rows of a slice; a row is refused at the stage of its first error."""
        stages: dict[int, Stage] = {}
        for error in encoded.errors:
            stages.setdefault(error.row, error.stage)
        duplicates = 0
        if (marks := self._marks) is not None and marks.written:
            # The topic already has rows of this payload: they were written before a crash, or by an earlier attempt of
            # the same request.
            of, dataset = marks.of, target.dataset
            rows = {row for row, _, _, _ in encoded.records if row not in stages}
            fresh = {row for row, change, _, _ in encoded.records if of(dataset, row, change) is not None}
            stale = [row for row in stages if of(dataset, row) is None]
            duplicates = len(rows - fresh) + len(stale)
            for row in stale:
                del stages[row]
        refused, left_out = Counter(stages.values()), Counter(encoded.left_out)
        admitted = read - duplicates - refused.total() - left_out.total()
        return RowCounts(read=read, admitted=admitted, duplicates=duplicates, refused=refused, left_out=left_out)

    def _keyed(self, target: Target, records: Sequence[EncodedRecord]) -> list[TopicItem]:
        """Return a message for each record, since its key says which partition takes it."""
        marks = self._marks
        if marks is None:
            return [(key, value, None) for _, _, key, value in records]
        headers = marks.headers_of(target.dataset, [(row, change) for row, change, _, _ in records])
        items = zip(records, headers, strict=True)
        return [(key, value, headers) for (_, _, key, value), headers in items if headers is not None]

    def _unkeyed(self, target: Target, records: Sequence[EncodedRecord]) -> list[TopicItem]:
        """Return records without keys as blocks, and a record that is alone as it is."""
        if (run := self._run(target, records)) is not None:
            values = [value for _, _, _, value in records]
            return [_block(values[block], run(block.start, block.stop)) for block in blocks_of(values)]
        marks: list[str] = []
        if self._marks is not None:
            of = self._marks.of
            marked = [(record, of(target.dataset, record[0], record[1])) for record in records]
            records = [record for record, mark in marked if mark is not None]
            marks = [mark for _, mark in marked if mark is not None]
        values = [value for _, _, _, value in records]
        items: list[TopicItem] = []
        for block in blocks_of(values):
            headers = None if self._marks is None else self._marks.headers(target.dataset, marks[block])
            items.append(_block(values[block], headers))
        return items

    def _run(
        self, target: Target, records: Sequence[EncodedRecord]
    ) -> Callable[[int, int], Mapping[str, bytes]] | None:
        """Return the function for the headers of some records by their places; None if each needs a mark of its own.

        They need none if they come from consecutive rows, and nothing of the payload was written before.
        """
        marks = self._marks
        if marks is None or marks.run is None or marks.written or not records:
            return None
        run, first = marks.run, records[0][0]
        if [row for row, _, _, _ in records] != list(range(first, first + len(records))):
            return None
        return lambda start, stop: marks.headers(target.dataset, [run(first + start, first + stop)])

    def _letters(self, target: Target, errors: Sequence[RowError], now_us: int) -> list[TopicItem]:
        by_row: dict[int, list[RowError]] = {}
        for error in errors:
            by_row.setdefault(error.row, []).append(error)
        items: list[TopicItem] = []
        for row, reasons in by_row.items():
            mark = None if self._marks is None else self._marks.of(target.dataset, row)
            if (self._marks is not None and mark is None) or self._is_erased(self._rows.row(row)):
                continue
            headers = None if self._marks is None or mark is None else self._marks.headers(target.dataset, [mark])
            letter: dict[str, Any] = {
                "dataset": target.dataset,
                # Datasets of several branches may have one name, and one of them may be deleted later. The topic tells
                # them apart.
                "topic": target.topic,
                **self._origin(row),
                "reason": [{"field": reason.field, "message": reason.message} for reason in reasons],
                "row": _payload(self._rows.row(row)),
                "time": now_us,
            }
            content = orjson.dumps(letter, default=_shown, option=orjson.OPT_NON_STR_KEYS)
            # The key of the dead letter, which replaces an earlier letter with the same key. A mark names one row, so a
            # row that is sent again still has one letter. Without marks the key is made from the content and the row's
            # number, so that two equal rows of one payload have two letters.
            unique = content + row.to_bytes(8) if mark is None else f"{target.topic}/{mark}".encode()
            items.append((blake2b(unique, digest_size=KEY_BYTES).digest(), content, headers))
        return items

    def _is_erased(self, row: object) -> bool:
        """Return whether a row that was refused belongs to an erased key of any dataset."""
        targets = [target for target, _ in self._hides.values()]
        return any(self._erased.hides_values(target.topic, target.erasable_of(row)) for target in targets)


def _not_erased(records: list[EncodedRecord], target: Target, hides: HidesRecord) -> list[EncodedRecord]:
    if hides.key is not None:
        records = [record for record in records if record[2] is None or not hides.key(record[2])]
    if hides.row is not None:
        rows = [target.row_of(record[3]) for record in records]
        records = [record for record, row in zip(records, rows, strict=True) if row is None or not hides.row(row)]
    return records


def _block(values: Sequence[bytes], headers: Mapping[str, bytes] | None) -> TopicItem:
    return None, values[0] if len(values) == 1 else block_of(values), headers


def _payload(row: object) -> object:
    """Return a row for a dead letter: the row itself, or the beginning of its text if it is large."""
    text = orjson.dumps(row, _shown, orjson.OPT_NON_STR_KEYS)
    return orjson.Fragment(text) if len(text) <= MAX_PAYLOAD else text[:MAX_PAYLOAD].decode(errors="ignore")


def _shown(value: object) -> object:
    """Return the form in JSON of a value that JSON doesn't have, from which it can be cast when the row is sent again.

    Records in Avro and Protobuf have bytes, and decimals.
    """
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes) else str(value)
