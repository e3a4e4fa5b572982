"""The reader of a stream: it reads the shards in turn, each after its parents."""

import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import structlog
from botocore.exceptions import BotoCoreError, ClientError

from caraway.dataplane.ingest.table import RowTable
from caraway.dataplane.sources.decoding.json_objects import decode_json
from caraway.dataplane.sources.kinesis.connection import THROTTLED, StreamConnection, clock_of, code_of
from caraway.dataplane.sources.kinesis.records import ShardRecord, mark_of, place_of, records_of, short_names
from caraway.dataplane.sources.kinesis.shards import Place, Shard, StreamPosition, readable, shard_of
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.graph.connectors import KinesisConnector, StreamStart

LOG = structlog.get_logger(__name__)
# The most answers that are requested, or wait to be handed over, at a time. Each has at most 10 MB of records.
REQUESTS = 2
# The most records of an answer, which is what AWS allows.
LIMIT = 10_000
# The seconds between two requests to one shard: in general, and after an answer without records at the end of the
# shard. AWS allows five requests a second to a shard, by all of its readers together.
BUSY_S, IDLE_S = 0.25, 1.0
# The seconds after which a shard is asked again that had too many requests: after the first refusal, and at most. In
# between, they double with each refusal.
THROTTLED_S = (1.0, 16.0)
# The seconds after which the shards are listed again. They are also listed whenever one ends.
LISTING_S = 60.0
# A stream that is at least this many seconds behind shows its progress.
BEHIND_S = 60
# A sample asks at most this many shards, each at most this many times, since an answer may be empty although there are
# records.
PEEK_SHARDS, PEEK_ANSWERS = 10, 3
MS = 1_000
US = 1_000_000


@dataclass(slots=True)
class _Reading:
    """How far a shard was asked.

    Attributes:
        shard: The shard.
        iterator: The iterator for the next request; None before the first one, and after the last one has expired.
        due_at: When the next request may be sent, by `time.monotonic`.
        wait_s: How long the shard is left alone after the next refusal for too many requests.
        behind_ms: How much older than now the records are that were read last; None before the first answer.
        asked_at: When the last request was sent, by `time.monotonic`.
        empty_at: When the last request was sent, by `time.monotonic`, if its answer had no records and was the last.
        resumed: The sequence number of the record that was read last, if the next answer will begin with it again.
    """

    shard: Shard
    iterator: str | None = None
    due_at: float = 0.0
    wait_s: float = THROTTLED_S[0]
    behind_ms: int | None = None
    asked_at: float = 0.0
    empty_at: float | None = None
    resumed: int | None = None


@dataclass(slots=True)
class _Answer:
    """Records of a shard that aren't handed over yet; `ended` if no others will come."""

    shard: str
    records: deque[ShardRecord] = field(default_factory=deque)
    ended: bool = False


class KinesisReader:
    """Reads all shards of a stream (`SourceReader`).

    The position has the beginning of the first read, and the last sequence number of each shard.
    """

    def __init__(self, connector: KinesisConnector, context: SourceContext) -> None:
        """Prepare to read."""
        self._connection = StreamConnection(connector, context)
        self._where = self._connection.where
        self._start = connector.start
        self._position = StreamPosition(connector.start)
        self._pool = ThreadPoolExecutor(REQUESTS, thread_name_prefix="kinesis")
        self._shards: dict[str, Shard] = {}
        self._short: dict[str, str] = {}
        self._reading: dict[str, _Reading] = {}
        self._asked: dict[str, Future[dict[str, Any]]] = {}
        self._answers: deque[_Answer] = deque()
        self._listed_at = float("-inf")
        self._behind_first_ms: int | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on from a position; the first time, fix the beginning (see `SourceReader.seek`)."""
        del items
        if position:
            self._position = StreamPosition.from_json(position)
            self._list()
        else:
            clock = self._list()
            # The clock of AWS has full seconds. So records from earlier in that second are read, too, and none is
            # missed.
            start = int(clock * US) if self._start is StreamStart.LATEST else self._start
            self._position = StreamPosition(start)
        return self._position.to_json()

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next records; see `SourceReader.poll`."""
        begun = time.monotonic()
        deadline = begun + timeout_s
        while not self._answers:
            if time.monotonic() > self._listed_at + LISTING_S:
                self._list()
            self._ask()
            now = time.monotonic()
            if now >= deadline:
                break
            dues = [each.due_at for name, each in self._reading.items() if name not in self._asked]
            wake_at = min([deadline, *(dues if len(self._asked) < REQUESTS else ())])
            if self._asked:
                wait(self._asked.values(), timeout=max(0.0, wake_at - now), return_when=FIRST_COMPLETED)
            else:
                time.sleep(max(0.0, wake_at - now))
            self._collect()
        if not self._answers:
            return None
        # The next answers are fetched while the rows of this one are written.
        self._ask()
        return self._batch(rows, size)

    def is_ahead(self, mark: str) -> bool:
        """Return whether a mark belongs to a record that isn't read yet."""
        short, sequence_number, part = place_of(mark)
        shard = self._short.get(short)
        # A shard that the stream doesn't have any more is never read again.
        return shard is not None and not self._position.has_read(shard, sequence_number, part)

    def acknowledge(self, position: Position) -> None:
        """Do nothing: Kinesis doesn't keep positions."""

    def lag(self) -> int | None:
        """Return 0 if all is read; else None, as Kinesis counts no records."""
        return 0 if self._all_taken and all(reading.behind_ms == 0 for reading in self._reading.values()) else None

    def idle_at(self) -> float | None:
        """Return when the first of those requests was sent that found all shards read to their ends."""
        times = [reading.empty_at for reading in self._reading.values()]
        return (
            min((at for at in times if at is not None), default=None) if None not in times and self._all_taken else None
        )

    def progress(self) -> Progress | None:
        """Return how much of the time by which the stream was behind is made up for; None if it isn't behind."""
        behind = max((reading.behind_ms or 0 for reading in self._reading.values()), default=0)
        if behind < BEHIND_S * MS:
            self._behind_first_ms = None
            return None
        first = self._behind_first_ms = max(behind, self._behind_first_ms or 0)
        return Progress(done=(first - behind) // MS, total=first // MS, unit="seconds")

    def peek(self, rows: int) -> SourceBatch:
        """Return the oldest records of some shards."""
        listed = [shard_of(shard) for shard in self._connection.shards()[0]]
        found: list[ShardRecord] = []
        try:
            for shard in listed[:PEEK_SHARDS]:
                iterator = self._connection.iterator(shard.name, ShardIteratorType="TRIM_HORIZON")
                for _ in range(PEEK_ANSWERS):
                    answer = self._connection.records(iterator, max(1, rows - len(found)))
                    found += records_of(answer["Records"], shard)
                    iterator = answer.get("NextShardIterator", "")
                    if answer["Records"] or not iterator or len(found) >= rows:
                        break
        except (ClientError, BotoCoreError) as error:
            raise self._connection.error(error) from error
        return self._batch_of(found[:rows])

    def close(self) -> None:
        """End the connection."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    @property
    def _all_taken(self) -> bool:
        """True if no answers wait to be handed over, and no shards to be listed."""
        return bool(self._reading) and not self._answers and self._listed_at > float("-inf")

    def _list(self) -> float:
        """Read which shards the stream has, and return the time on the clock of AWS."""
        listed, clock = self._connection.shards()
        self._shards = {shard.name: shard for shard in map(shard_of, listed)}
        self._short = short_names(list(self._shards))
        if lost := self._position.keep(self._shards):
            LOG.warning(
                "the retention of the stream has passed before all its records were read; the others are read",
                source=self._where,
                shards=lost,
            )
        may = {shard.name: shard for shard in readable(self._shards, self._position)}
        for name in self._reading.keys() - may.keys():
            del self._reading[name]
        for name, shard in may.items():
            if name not in self._reading:
                self._reading[name] = self._reading_of(shard)
        self._listed_at = time.monotonic()
        return clock

    def _reading_of(self, shard: Shard) -> _Reading:
        place = self._position.places.get(shard.name)
        return _Reading(shard, resumed=place.sequence_number if place else None)

    def _ask(self) -> None:
        """Send requests to the shards that have waited longest, as long as few answers are kept."""
        now = time.monotonic()
        free = REQUESTS - len(self._asked) - len(self._answers)
        if free <= 0:
            return
        due = [each for name, each in self._reading.items() if each.due_at <= now and name not in self._asked]
        due.sort(key=lambda reading: reading.due_at)
        kept = {answer.shard for answer in self._answers}
        for reading in [each for each in due if each.shard.name not in kept][:free]:
            reading.due_at, reading.asked_at = now + BUSY_S, now
            self._asked[reading.shard.name] = self._pool.submit(self._fetch, reading)

    def _fetch(self, reading: _Reading) -> dict[str, Any]:
        """Return the next answer of a shard. It runs in another thread, while nothing else changes `reading`."""
        name = reading.shard.name
        iterator = reading.iterator
        if iterator is None:
            iterator = self._iterator(name)
        return self._connection.records(iterator, LIMIT)

    def _iterator(self, shard: str) -> str:
        place = self._position.places.get(shard)
        start = self._position.start
        if place is not None:
            try:
                # The last record that was read is requested again. If it is gone, it and maybe records behind it have
                # expired, which `_take` then logs.
                number = str(place.sequence_number)
                return self._connection.iterator(
                    shard, ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=number
                )
            except ClientError as error:
                if code_of(error) != "InvalidArgumentException":
                    raise
                # The retention of the record with this number has passed, so reading goes on with the oldest record
                # that is left.
                return self._connection.iterator(shard, ShardIteratorType="TRIM_HORIZON")
        if not isinstance(start, int):
            return self._connection.iterator(shard, ShardIteratorType="TRIM_HORIZON")
        try:
            return self._connection.iterator(shard, ShardIteratorType="AT_TIMESTAMP", Timestamp=start / US)
        except ClientError as error:
            if code_of(error) != "InvalidArgumentException":
                raise
            # The start is in the future by the clock of AWS, so the iterator begins now. `_take` leaves out records
            # before the start.
            now = clock_of(error.response)
            return self._connection.iterator(shard, ShardIteratorType="AT_TIMESTAMP", Timestamp=now)

    def _collect(self) -> None:
        """Take the answers that have come."""
        for name in [name for name, future in self._asked.items() if future.done()]:
            future = self._asked.pop(name)
            reading = self._reading.get(name)
            if reading is None:
                continue
            try:
                self._take(reading, future.result())
            except ClientError as error:
                code = code_of(error)
                if code == "ExpiredIteratorException":
                    # An iterator expires after five minutes. The shard wasn't read for longer than that, so a new
                    # iterator is requested.
                    self._reading[name] = self._reading_of(reading.shard)
                elif code in THROTTLED:
                    reading.due_at = time.monotonic() + reading.wait_s
                    reading.wait_s = min(reading.wait_s * 2, THROTTLED_S[1])
                else:
                    raise self._connection.error(error) from error
            except BotoCoreError as error:
                raise self._connection.error(error) from error

    def _take(self, reading: _Reading, answer: Mapping[str, Any]) -> None:
        shard = reading.shard
        reading.wait_s = THROTTLED_S[0]
        reading.iterator = answer.get("NextShardIterator")
        reading.behind_ms = int(answer.get("MillisBehindLatest") or 0)
        raw = answer["Records"]
        start = self._position.start
        if isinstance(start, int) and raw and shard.name not in self._position.places:
            raw = [each for each in raw if each["ApproximateArrivalTimestamp"].timestamp() * US >= start]
        records = deque(records_of(raw, shard))
        if reading.resumed is not None and raw:
            if int(raw[0]["SequenceNumber"]) != reading.resumed:
                LOG.warning(
                    "the record that was read last isn't in the stream any more, since its retention has passed; so "
                    "are others behind it that were as old; the rest is read",
                    source=self._where,
                    shard=shard.name,
                )
            reading.resumed = None
            has_read = self._position.has_read
            while records and has_read(shard.name, records[0].sequence_number, records[0].part):
                records.popleft()
        ended = reading.iterator is None
        reading.empty_at = None if raw or reading.behind_ms or ended else reading.asked_at
        if reading.empty_at is not None:
            reading.due_at = time.monotonic() + IDLE_S
        if ended:
            # A shard that has ended isn't asked again. Its children are listed, and asked, only when its records were
            # handed over.
            del self._reading[shard.name]
        if records or ended:
            self._answers.append(_Answer(shard.name, records, ended))

    def _batch(self, rows: int, size: int) -> SourceBatch:
        """Return the records of the answers, as many as may be handed over at a time."""
        found: list[ShardRecord] = []
        while self._answers and len(found) < rows and size > 0:
            answer = self._answers[0]
            while answer.records and len(found) < rows and size > 0:
                record = answer.records.popleft()
                size -= len(record.data)
                found.append(record)
                part = None if record.is_last else record.part + 1
                self._position.places[record.shard] = Place(record.sequence_number, part)
            if answer.records:
                break
            self._answers.popleft()
            if answer.ended:
                self._position.places[answer.shard] = None
                self._listed_at = float("-inf")
        return self._batch_of(found)

    def _batch_of(self, records: list[ShardRecord]) -> SourceBatch:
        rows, faults = decode_json([record.data for record in records])
        return SourceBatch(
            rows=RowTable(rows, faults),
            mark=lambda row: mark_of(records[row]),
            origin=lambda row: {
                "partition": records[row].shard,
                "offset": f"{records[row].sequence_number}/{records[row].part}".removesuffix("/0"),
            },
            position=self._position.to_json(),
            size=sum(len(record.data) for record in records),
        )
