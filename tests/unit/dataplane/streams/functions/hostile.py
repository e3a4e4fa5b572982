"""Messages that a process of users' functions may send once a function controls its channel."""

import os
import pickle as pickles

import pyarrow as pa

from caraway.process.confinement.channel import Channel
from caraway.process.confinement.values import packed

TYPE = pa.struct([("made", pa.int64()), ("message", pa.string()), ("traceback", pa.string())])


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("kill -9 $PPID",)


def pickle(channel: Channel) -> None:
    """Send a pickle that would kill the process that unpickles it."""
    _answer(channel, pickles.dumps(_Runs()), raw=True)


def arrow(channel: Channel) -> None:
    """Send bytes that aren't Arrow."""
    _answer(channel, b"x" * 1000)


def length(channel: Channel) -> None:
    """Send two rows as the answer for one."""
    _answer(channel, _stream(pa.array([None, None], TYPE)))


def type(channel: Channel) -> None:  # noqa: A001 (the name of the case)
    """Send a column of another type."""
    _answer(channel, _stream(pa.array([None], pa.struct([("made", pa.string())]))))


def offsets(channel: Channel) -> None:
    """Send text whose end is far outside of its buffer."""
    content = pa.py_buffer((0).to_bytes(4, "little") + (1 << 30).to_bytes(4, "little"))
    text = pa.Array.from_buffers(pa.string(), 1, [None, content, pa.py_buffer(b"short")])
    parts = [pa.array([None], pa.int64()), text, pa.array([None], pa.string())]
    _answer(channel, _stream(pa.StructArray.from_arrays(parts, fields=list(TYPE))))


def compressed(channel: Channel) -> None:
    """Send a right answer of a megabyte in a few hundred bytes."""
    message = pa.array(["x" * (1 << 20)])
    row = pa.StructArray.from_arrays([pa.nulls(1, pa.int64()), message, pa.nulls(1, pa.string())], fields=list(TYPE))
    _answer(channel, _stream(row, "zstd"))


def dictionaries(channel: Channel) -> None:
    """Send a stream whose type names a dictionary, which stands for many texts."""
    text = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["x"]))
    _answer(channel, _stream(pa.StructArray.from_arrays([pa.nulls(1, pa.int64()), text], names=["made", "message"])))


def _answer(channel: Channel, content: bytes, *, raw: bool = False) -> None:
    channel.receive()
    channel.send(content if raw else packed(["answer", content]))
    channel.receive()


def _stream(array: pa.StructArray, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], ["rows"])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content
