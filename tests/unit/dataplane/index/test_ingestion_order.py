"""Messages are divided by ingestion time, and those of a partition stay in the order of their offsets."""

from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.index.feeding.ingestion_order import by_ingestion
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import INT
from caraway.graph.plan.model import Column, RecordSchema

CODEC = RecordCodec(RecordSchema(keys=(), columns=(Column(name="n", dtype=INT),), timestamp="t", fingerprint=1))


def value(ingested_us: int) -> bytes:
    return CODEC.encode_value(op=PUT, time_us=0, ingested_us=ingested_us, row=[1])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.sampled_from(["record", "block", "damaged"]))))
def test_messages_are_divided_by_ingestion_time(drawn: list[tuple[int, int, str]]) -> None:
    messages: list[Message] = []
    ingested: list[int] = []
    for offset, (partition, ingested_us, kind) in enumerate(drawn):
        made = {"record": value(ingested_us), "block": block_of([value(ingested_us)] * 2), "damaged": b"\xc1"}
        messages.append((None, made[kind], partition, offset))
        ingested.append(0 if kind == "damaged" else ingested_us)
    parts = by_ingestion(messages)
    read = [message for part in parts for message in part]
    assert sorted(read, key=lambda message: message[3]) == messages
    for partition in range(4):
        own = [message for message in messages if message[2] == partition]
        assert [message for message in read if message[2] == partition] == own
    known = [{max(ingested[m[3]] for m in messages if m[2] == n[2] and m[3] <= n[3]) for n in part} for part in parts]
    assert all(len(moments) == 1 for moments in known)
    assert [moment for (moment,) in known] == sorted({moment for (moment,) in known})
