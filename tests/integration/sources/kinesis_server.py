"""A server that speaks the part of Kinesis's protocol that readers use, and can do what moto's can't.

Its shards keep their records after they are divided or merged, as AWS's do; records can be trimmed, iterators expire,
and requests be refused or answered by half.
"""

import json
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from threading import Lock, Thread
from typing import Any

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/weighings"
SPACE = 1 << 128
#: AWS's sequence numbers have 56 digits.
FIRST = 49_545_115_243_490_985_018_280_067_714_973_144_582_180_062_593_244_200_961


@dataclass
class StoredShard:
    name: str
    first: int
    last: int
    parents: tuple[str, ...] = ()
    open: bool = True
    #: Sequence number, content and time of arrival.
    records: list[tuple[int, bytes, float]] = field(default_factory=list)


class KinesisServer:
    def __init__(self, shards: int = 1, *, page: int = 4) -> None:
        """Make a stream whose answers have at most `page` records."""
        self.page = page
        step = SPACE // shards
        self.shards: dict[str, StoredShard] = {}
        for n in range(shards):
            self._add(n * step, SPACE - 1 if n == shards - 1 else (n + 1) * step - 1)
        self.next = FIRST
        self.now = 1_700_000_000.0
        #: The faults of the next requests for records: "throttled", "expired", "cut", "refused".
        self.faults: list[str] = []
        self.asked: list[str] = []
        self._lock = Lock()
        self.url = ""

    def _add(self, first: int, last: int, *parents: str) -> StoredShard:
        shard = StoredShard(f"shardId-{len(self.shards):012d}", first, last, parents)
        self.shards[shard.name] = shard
        return shard

    def shard_of(self, key_hash: int) -> StoredShard:
        return next(shard for shard in self.shards.values() if shard.open and shard.first <= key_hash <= shard.last)

    def put(self, key_hash: int, data: bytes) -> None:
        with self._lock:
            self.shard_of(key_hash).records.append((self.next, data, self.now))
            self.next += 1_000_003

    def split(self, name: str) -> None:
        with self._lock:
            shard = self.shards[name]
            shard.open = False
            middle = (shard.first + shard.last) // 2
            self._add(shard.first, middle, name)
            self._add(middle + 1, shard.last, name)

    def merge(self, left: str, right: str) -> None:
        with self._lock:
            one, other = self.shards[left], self.shards[right]
            assert one.open
            assert other.open
            assert one.last + 1 == other.first
            one.open = other.open = False
            self._add(one.first, other.last, left, right)

    def trim(self, name: str, count: int) -> list[bytes]:
        """Remove the oldest records of a shard, and return what they had."""
        with self._lock:
            records = self.shards[name].records
            gone = [data for _, data, _ in records[:count]]
            del records[:count]
            return gone

    def forget(self, name: str) -> None:
        """Remove a closed shard, as AWS does when the retention of its records has passed."""
        with self._lock:
            assert not self.shards[name].open
            del self.shards[name]

    def answer(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.asked.append(action)
            assert body["StreamARN"] == ARN
            return getattr(self, f"_{action}")(body)  # type: ignore[no-any-return]

    def _ListShards(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:  # noqa: N802 (as AWS calls it)
        # Three shards a page.
        begin = int(body.get("NextToken", "0"))
        names = list(self.shards)
        listed = []
        for name in names[begin : begin + 3]:
            shard = self.shards[name]
            parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False))
            hashes = {"StartingHashKey": str(shard.first), "EndingHashKey": str(shard.last)}
            numbers = {"StartingSequenceNumber": "1"}
            listed.append({"ShardId": name, "HashKeyRange": hashes, "SequenceNumberRange": numbers, **parents})
        more = {"NextToken": str(begin + 3)} if begin + 3 < len(names) else {}
        return 200, {"Shards": listed, **more}

    def _GetShardIterator(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:  # noqa: N802
        match body["ShardIteratorType"]:
            case "TRIM_HORIZON":
                number = 0
            case "AT_SEQUENCE_NUMBER":
                number = int(body["StartingSequenceNumber"])
            case "AT_TIMESTAMP":
                at = body["Timestamp"]
                if at > self.now:
                    return _error("InvalidArgumentException", "the timestamp is greater than the current one")
                records = self.shards[body["ShardId"]].records
                number = next((number for number, _, arrived in records if arrived >= at), self.next)
            case other:
                raise AssertionError(other)
        return 200, {"ShardIterator": f"{body['ShardId']}|{number}"}

    def _GetRecords(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:  # noqa: N802
        match self.faults.pop(0) if self.faults else "":
            case "throttled":
                return _error("ProvisionedThroughputExceededException", "Rate exceeded")
            case "expired":
                return _error("ExpiredIteratorException", "Iterator expired")
            case "refused":
                return _error("AccessDeniedException", "not authorized")
            case "cut":
                return 0, {"Records": [], "NextShardIterator": "never used", "MillisBehindLatest": 0}
        name, number = body["ShardIterator"].split("|")
        shard = self.shards[name]
        begin = bisect_left(shard.records, int(number), key=itemgetter(0))
        taken = shard.records[begin : begin + min(body["Limit"], self.page)]
        after = taken[-1][0] + 1 if taken else int(number)
        has_all = begin + len(taken) == len(shard.records)
        is_end = not shard.open and has_all
        # AWS sometimes has empty answers although there are records.
        records = [
            {
                "SequenceNumber": str(sequence),
                "Data": b64encode(data).decode(),
                "PartitionKey": "k",
                "ApproximateArrivalTimestamp": arrived,
            }
            for sequence, data, arrived in taken
        ]
        more = {} if is_end else {"NextShardIterator": f"{name}|{after}"}
        behind = 0 if has_all else 1000 * int(1 + self.now - taken[-1][2])
        return 200, {"Records": records, "MillisBehindLatest": behind, **more}


def _error(code: str, message: str) -> tuple[int, dict[str, Any]]:
    return 400, {"__type": code, "message": message}


@contextmanager
def running(server: KinesisServer) -> Iterator[KinesisServer]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = server.answer(self.headers["X-Amz-Target"].rpartition(".")[2], body)
            content = json.dumps(answer).encode()
            self.send_response(status or 200)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content if status else content[: len(content) // 2])
            self.close_connection = not status

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(server.now)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    server.url = f"http://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
