"""Records of a shard: the records that a producer has put into one are taken apart, and each has a mark."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from google.protobuf.message import DecodeError

from caraway.dataplane.sources.kinesis.shards import Shard
from caraway.graph.pb.caraway.v1.kinesis_aggregation_pb2 import AggregatedRecord

# An aggregated record of the Kinesis Producer Library begins with these bytes and ends with an MD5 digest.
MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
NUMBERED = re.compile(r"shardId-(\d+)")


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A record that an application has put into a stream.

    Attributes:
        shard: The name of the shard.
        sequence_number: The number of the stream's record, which grows within a shard; it has up to 186 bits.
        part: The place of the record in the stream's record, if that is an aggregated one; else 0.
        data: The content.
        is_last: False if further parts of the same record of the stream come behind it.
    """

    shard: str
    sequence_number: int
    part: int
    data: bytes
    is_last: bool = True


def records_of(answer: Sequence[Mapping[str, Any]], shard: Shard) -> Iterator[ShardRecord]:
    """Yield the records in an answer of Kinesis.

    Parts of aggregated records that belong into another shard are left out. They were in flight while the shard was
    divided, and the producer, which gets the shard's name back, sends them again, as Amazon's own consumers expect.
    """
    for record in answer:
        data: bytes = record["Data"]
        number = int(record["SequenceNumber"])
        parts = _parts(data, shard) if data.startswith(MAGIC) else None
        if parts is None:
            yield ShardRecord(shard.name, number, 0, data)
            continue
        last = len(parts) - 1
        for n, (part, content) in enumerate(parts):
            yield ShardRecord(shard.name, number, part, content, is_last=n == last)


def mark_of(record: ShardRecord) -> str:
    """Return the mark of a record: its shard, its sequence number and, if it isn't 0, its part."""
    number = record.sequence_number
    text = urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8 or 1)).rstrip(b"=").decode()
    mark = f"{_short(record.shard)}/{text}"
    return f"{mark}/{record.part}" if record.part else mark


def place_of(mark: str) -> tuple[str, int, int]:
    """Return the short name of the shard in a mark, the sequence number and the part."""
    shard, text, *part = mark.split("/")
    number = int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return shard, number, int(part[0]) if part else 0


def short_names(shards: Sequence[str]) -> dict[str, str]:
    """Return the names of shards by the short names that marks have."""
    return {_short(shard): shard for shard in shards}


def _short(shard: str) -> str:
    numbered = NUMBERED.fullmatch(shard)
    # AWS names shards by numbers. Other names may have characters that a mark can't have.
    return str(int(numbered[1])) if numbered else "x" + urlsafe_b64encode(shard.encode()).rstrip(b"=").decode()


def _parts(data: bytes, shard: Shard) -> list[tuple[int, bytes]] | None:
    """Return the parts of an aggregated record, numbered; None if the record only begins like one."""
    body, digest = data[len(MAGIC) : -DIGEST_BYTES], data[-DIGEST_BYTES:]
    if md5(body, usedforsecurity=False).digest() != digest:
        return None
    try:
        message = AggregatedRecord.FromString(body)
    except DecodeError:
        return None
    keys = [_hash(key) for key in message.partition_key_table]
    explicit = [int(key) for key in message.explicit_hash_key_table]
    parts: list[tuple[int, bytes]] = []
    for number, part in enumerate(message.records):
        has_explicit = part.HasField("explicit_hash_key_index")
        table, index = (explicit, part.explicit_hash_key_index) if has_explicit else (keys, part.partition_key_index)
        if index >= len(table):
            return None
        if shard.first_hash <= table[index] <= shard.last_hash:
            parts.append((number, part.data))
    return parts


def _hash(partition_key: str) -> int:
    """Return the number by which Kinesis chooses the shard of a partition key."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())
