"""The reader of Kinesis over boto3: each record once, and parents before children, whatever the stream does."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import orjson
import pytest
from aws_kinesis_agg.aggregator import RecordAggregator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from caraway.dataplane.sources.kinesis import reader as module
from caraway.dataplane.sources.kinesis.reader import KinesisReader
from caraway.dataplane.sources.reader import Position, SourceBatch
from caraway.errors import UnavailableError
from caraway.graph.connectors import KinesisConnector, StreamStart
from caraway.graph.systems import KinesisSystem
from tests.effort import examples
from tests.integration.sources.contexts import context_of
from tests.integration.sources.kinesis_server import ARN, SPACE, KinesisServer, running
from tests.services.moto import running_moto
from tests.timeouts import scaled

ROLE = "arn:aws:iam::123456789012:role/reader"
SYSTEM = KinesisSystem(name="kin", role_arn=ROLE)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the time that AWS wants between requests."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for name in ("BUSY_S", "IDLE_S"):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(module, "THROTTLED_S", (0.001, 0.002))


def reader_of(url: str, arn: str = ARN, start: StreamStart | int = StreamStart.TRIM_HORIZON) -> KinesisReader:
    connector = KinesisConnector(system=SYSTEM, stream_arn=arn, start=start)
    return KinesisReader(connector, context_of(connector, endpoints={"kin": url}))


def numbers(batch: SourceBatch) -> list[int]:
    return [batch.rows.row(n)["n"] for n in range(len(batch.rows))]  # type: ignore[index]


def read_all(reader: KinesisReader, rows: int = 10_000) -> list[int]:
    """Poll until the reader has found the ends of all shards."""
    return [n for batch in batches_of(reader, rows) for n in numbers(batch)]


def batches_of(reader: KinesisReader, rows: int = 10_000) -> Iterator[SourceBatch]:
    begun = time.monotonic()
    while (reader.idle_at() or 0) < begun:
        batch = reader.poll(rows=rows, size=1 << 20, timeout_s=0.01)
        if batch is not None:
            yield batch
        assert time.monotonic() < begun + scaled(30)


def row(n: int) -> bytes:
    return orjson.dumps({"n": n})


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with running_moto() as address:
        yield address


def test_a_stream_is_read_from_its_beginning_and_then_as_records_come(moto: str) -> None:
    client = boto3.client("kinesis", endpoint_url=moto, region_name="eu-west-1")
    client.create_stream(StreamName="all", ShardCount=3)
    arn = client.describe_stream_summary(StreamName="all")["StreamDescriptionSummary"]["StreamARN"]

    def put(begin: int, end: int) -> None:
        client.put_records(
            StreamName="all", Records=[{"Data": row(n), "PartitionKey": str(n)} for n in range(begin, end)]
        )

    put(0, 400)
    reader = reader_of(moto, arn)
    position = reader.seek({}, {})
    assert sorted(read_all(reader)) == list(range(400))
    assert reader.lag() == 0
    assert read_all(reader) == []
    put(400, 500)
    batch = reader.poll(rows=10, size=1 << 20, timeout_s=5)
    assert batch is not None
    rest = read_all(reader)
    assert sorted(numbers(batch) + rest) == list(range(400, 500))
    reader.close()
    # A reader at a position gets what comes after it, and "latest" is fixed by the first read.
    for at, expected in ((position, 500), (batch.position, 500 - 400 - len(batch.rows))):
        again = reader_of(moto, arn)
        assert again.seek(at, {}) == at
        assert len(read_all(again)) == expected
        again.close()
    newest = reader_of(moto, arn, StreamStart.LATEST)
    assert isinstance(newest.seek({}, {})["start"], int)
    newest.close()


def test_a_sample_shows_records_and_what_is_no_json() -> None:
    with running(KinesisServer(shards=2)) as server:
        server.put(0, row(1))
        server.put(0, b"{")
        server.put(SPACE - 1, row(2))
        reader = reader_of(server.url)
        batch = reader.peek(5)
        assert [batch.rows.row(n) for n in range(3)] == [{"n": 1}, "{", {"n": 2}]
        assert "isn't JSON" in batch.rows.faults[1]
        assert batch.origin(1)["partition"] == "shardId-000000000000"
        reader.close()


@pytest.mark.parametrize("start", [StreamStart.LATEST, 1_700_000_100_000_000])
def test_a_beginning_is_fixed_before_the_first_record_is_read(start: StreamStart | int) -> None:
    with running(KinesisServer()) as server:
        server.put(0, row(1))
        server.now += 100
        first = reader_of(server.url, start=start)
        position = first.seek({}, {})
        first.close()
        assert orjson.loads(orjson.dumps(position)) == position
        # The first reader ends before it has read anything; the second one begins where that would have begun.
        server.put(0, row(2))
        server.now += 1000
        server.put(0, row(3))
        second = reader_of(server.url, start=start)
        assert second.seek(position, {}) == position
        assert read_all(second) == [2, 3]
        second.close()


def test_a_beginning_in_the_future_waits_for_it() -> None:
    with running(KinesisServer()) as server:
        reader = reader_of(server.url, start=int((server.now + 50) * 1_000_000))
        reader.seek({}, {})
        server.put(0, row(1))
        assert read_all(reader) == []
        server.now += 50
        server.put(0, row(2))
        assert read_all(reader) == [2]
        reader.close()


def test_parts_of_an_aggregated_record_are_rows_with_marks_and_positions_of_their_own() -> None:
    aggregator = RecordAggregator()
    for n in range(10):
        aggregator.add_user_record("key", row(n))
    _, _, data = aggregator.clear_and_get().get_contents()
    with running(KinesisServer()) as server:
        server.put(0, row(-1))
        server.put(0, data)
        server.put(0, row(10))
        reader = reader_of(server.url)
        reader.seek({}, {})
        marks: list[str] = []
        batches = []
        while len(marks) < 12:
            batch = reader.poll(rows=3, size=1 << 20, timeout_s=5)
            assert batch is not None
            marks += [batch.mark(n) for n in range(len(batch.rows))]
            batches.append(batch)
        reader.close()
        assert len(set(marks)) == 12
        assert [n for batch in batches for n in numbers(batch)] == [-1, *range(11)]
        # A reader goes on in the middle of such a record.
        again = reader_of(server.url)
        again.seek(orjson.loads(orjson.dumps(batches[1].position)), {})
        assert [again.is_ahead(mark) for mark in marks] == [False] * 6 + [True] * 6
        assert read_all(again) == [*range(5, 11)]
        again.close()


def test_parts_for_another_shard_are_left_to_it() -> None:
    aggregator = RecordAggregator()
    for n, key_hash in enumerate((0, SPACE - 1)):
        aggregator.add_user_record("key", row(n), str(key_hash))
    _, _, data = aggregator.clear_and_get().get_contents()
    with running(KinesisServer(shards=2)) as server:
        server.put(0, data)
        reader = reader_of(server.url)
        reader.seek({}, {})
        assert read_all(reader) == [0]
        reader.close()


def test_a_record_that_only_begins_like_an_aggregated_one_is_one_record() -> None:
    with running(KinesisServer()) as server:
        server.put(0, b"\xf3\x89\x9a\xc2" + b"x" * 40)
        reader = reader_of(server.url)
        batch = reader.peek(5)
        assert len(batch.rows) == len(batch.rows.faults) == 1
        reader.close()


def test_too_many_requests_and_expired_iterators_only_delay() -> None:
    with running(KinesisServer()) as server:
        for n in range(20):
            server.put(0, row(n))
        server.faults = ["throttled", "throttled", "", "expired", "", "throttled", "expired"]
        reader = reader_of(server.url)
        reader.seek({}, {})
        assert read_all(reader) == list(range(20))
        assert server.faults == []
        reader.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("cut", "an answer of AWS was cut off"),
        ("refused", f"refuses GetRecords.*the role {ROLE} needs.*kinesis:GetRecords"),
    ],
)
def test_a_cut_or_refused_answer_is_an_error_and_nothing_is_lost(fault: str, message: str) -> None:
    with running(KinesisServer()) as server:
        for n in range(10):
            server.put(0, row(n))
        reader = reader_of(server.url)
        reader.seek({}, {})
        batch = reader.poll(rows=3, size=1 << 20, timeout_s=5)
        assert batch is not None
        server.faults = [fault] * 9
        found = numbers(batch)
        position = batch.position
        with pytest.raises(UnavailableError, match=message):  # noqa: PT012 (some rows may come before the error)
            for batch in batches_of(reader, 3):
                position = batch.position
                found += numbers(batch)
        reader.close()
        server.faults = []
        again = reader_of(server.url)
        again.seek(position, {})
        assert found + read_all(again) == list(range(10))
        again.close()


def test_trimmed_records_are_passed_with_a_warning() -> None:
    with running(KinesisServer()) as server:
        for n in range(6):
            server.put(0, row(n))
        reader = reader_of(server.url)
        reader.seek({}, {})
        batch = reader.poll(rows=2, size=1 << 20, timeout_s=5)
        assert batch is not None
        reader.close()
        server.trim("shardId-000000000000", 4)
        with capture_logs() as logs:
            again = reader_of(server.url)
            again.seek(batch.position, {})
            assert read_all(again) == [4, 5]
            again.close()
        assert ["retention has passed" in str(log["event"]) for log in logs] == [True]
        # A whole shard may be gone, with records that weren't read.
        server.split("shardId-000000000000")
        server.put(0, row(6))
        server.trim("shardId-000000000000", 2)
        server.forget("shardId-000000000000")
        with capture_logs() as logs:
            again = reader_of(server.url)
            again.seek(batch.position, {})
            assert read_all(again) == [6]
            again.close()
        assert [log["shards"] for log in logs] == [["shardId-000000000000"]]


def test_a_missing_stream_and_missing_credentials_say_what_to_do(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(moto, "arn:aws:kinesis:eu-west-1:123456789012:stream/none")
    with pytest.raises(UnavailableError, match=r"stream/none.*ResourceNotFoundException.*is the stream there"):
        reader.peek(1)
    reader.close()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    reader = reader_of(moto)
    with pytest.raises(UnavailableError, match=r"kin: stream arn:.*credentials"):
        reader.peek(1)
    reader.close()


def test_the_role_is_assumed_in_aws(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    client = boto3.client("kinesis", region_name="eu-west-1")
    client.create_stream(StreamName="own", ShardCount=1)
    arn = client.describe_stream_summary(StreamName="own")["StreamDescriptionSummary"]["StreamARN"]
    client.put_record(StreamName="own", Data=row(1), PartitionKey="k")
    connector = KinesisConnector(system=SYSTEM, stream_arn=arn, start=StreamStart.TRIM_HORIZON)
    reader = KinesisReader(connector, context_of(connector))
    reader.seek({}, {})
    assert read_all(reader) == [1]
    credentials = reader._connection.client()._request_signer._credentials
    # These aren't the ones of the environment.
    assert credentials.token
    assert credentials.access_key != "test"
    reader.close()


@dataclass
class Readings:
    """The rows that a worker would have written, and the positions that it could have saved."""

    marks: set[str] = field(default_factory=set)
    #: Key and number of each row, in the order in which they were written.
    rows: list[tuple[int, int]] = field(default_factory=list)
    saved: list[Position] = field(default_factory=list)

    def take(self, batch: SourceBatch | None) -> None:
        if batch is None:
            return
        for n in range(len(batch.rows)):
            if batch.mark(n) not in self.marks:
                self.marks.add(batch.mark(n))
                content: Any = batch.rows.row(n)
                self.rows.append((content["key"], content["n"]))
        self.saved.append(orjson.loads(orjson.dumps(batch.position)))


# Keys are hashes, of which some are in each shard.
KEYS = [0, SPACE // 8, SPACE // 4, SPACE // 2, SPACE // 4 * 3, SPACE - 1]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_trace_of_resharding_faults_and_crashes_reads_each_record_once_and_in_order(data: st.DataObject) -> None:
    with running(KinesisServer(shards=data.draw(st.integers(1, 3), label="shards"))) as server:
        readings, put, trimmed = Readings(), 0, set()
        reader = reader_of(server.url)
        readings.saved.append(reader.seek({}, {}))
        for _ in range(data.draw(st.integers(1, 15), label="steps")):
            opened = [shard for shard in server.shards.values() if shard.open]
            match data.draw(st.sampled_from(["put", "poll", "poll", "split", "merge", "crash", "fault", "trim"])):
                case "put":
                    for key in data.draw(st.lists(st.integers(0, 5), max_size=12), label="keys"):
                        server.put(KEYS[key], orjson.dumps({"key": key, "n": put}))
                        put += 1
                case "poll":
                    rows = data.draw(st.integers(1, 6), label="rows")
                    readings.take(reader.poll(rows=rows, size=1 << 20, timeout_s=0.002))
                case "split":
                    server.split(data.draw(st.sampled_from(opened)).name)
                case "merge" if len(opened) > 1:
                    opened.sort(key=lambda shard: shard.first)
                    at = data.draw(st.integers(0, len(opened) - 2))
                    server.merge(opened[at].name, opened[at + 1].name)
                case "crash":
                    reader.close()
                    reader = reader_of(server.url)
                    # The rows that were written after an older position come again.
                    at = data.draw(st.integers(0, len(readings.saved) - 1), label="position")
                    del readings.saved[at + 1 :]
                    reader.seek(readings.saved[at], {})
                case "fault":
                    server.faults += data.draw(st.lists(st.sampled_from(["throttled", "expired"]), max_size=3))
                case "trim":
                    shard = data.draw(st.sampled_from(list(server.shards.values())))
                    gone = server.trim(shard.name, data.draw(st.integers(0, 2)))
                    trimmed |= {orjson.loads(each)["n"] for each in gone}
        ahead = {mark for mark in readings.marks if reader.is_ahead(mark)}
        before = len(readings.rows)
        written_again: set[str] = set()
        for batch in batches_of(reader):
            written_again |= {batch.mark(n) for n in range(len(batch.rows))} & readings.marks
            readings.take(batch)
        reader.close()
    # Rows that were written before and come again are those whose marks were ahead.
    assert written_again <= ahead
    assert not any(reader.is_ahead(mark) for mark in readings.marks)
    counts = Counter(n for _, n in readings.rows)
    assert max(counts.values(), default=1) == 1
    assert set(counts) <= set(range(put))
    assert set(range(put)) - set(counts) <= trimmed
    by_key = defaultdict(list)
    for key, n in readings.rows:
        by_key[key].append(n)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert before <= len(readings.rows)
