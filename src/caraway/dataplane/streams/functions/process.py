"""The program of a function process: it calls the functions of pipelines for batches until its worker goes away."""

import traceback

import pandas as pd
import pyarrow as pa

from caraway.dataplane.streams.functions.calls import CallBatch, ExhaustedError, run
from caraway.graph.redaction import redact_output, redacted, remembered
from caraway.graph.runtime import secret_provider
from caraway.process.confinement.channel import Channel
from caraway.process.confinement.hints import with_hint
from caraway.process.confinement.requests import received, secrets_through
from caraway.process.confinement.values import packed


def serve(channel: Channel) -> None:
    """Answer requests until the other end is closed, or the memory is used up."""
    redact_output()
    provider = remembered(secrets_through(channel))
    while True:
        batch: CallBatch = received(channel)
        try:
            secret_provider.set(provider if batch.has_secrets else None)
            answer = ["answer", _stream(run(batch.packed, batch.type_, batch.called, batch.columns))]
        except (ExhaustedError, MemoryError):
            channel.send(packed(["memory", None]))
            return
        except Exception as error:  # noqa: BLE001 (whatever it is, it is reported where somebody reads it)
            answer = ["error", redacted(with_hint(traceback.format_exc(), error))]
        channel.send(packed(answer))


def warm_up() -> None:
    """Run once the parts of pandas and Arrow that are slow at their first call."""
    frame = pd.DataFrame({"number": pd.array([1, None], dtype="Int64"), "text": pd.array(["a", None], dtype="string")})
    series = (frame["number"] + 1).rename("made")
    pa.array([{"made": None if value is pd.NA else value} for value in series.tolist()])
    _stream(pa.array([{"made": 1}]))


def _stream(array: pa.StructArray) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], ["rows"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content
