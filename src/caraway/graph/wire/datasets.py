"""Encoding of datasets to protobuf, and decoding."""

from caraway.graph.expectations import Expectation, ExpectationSuite
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.specs import DatasetSpec, FieldSpec, IndexSpec, PipelineSpec
from caraway.graph.wire.connectors import sink_from_wire, sink_to_wire, source_from_wire, source_to_wire
from caraway.graph.wire.metadata import decode_metadata, encode_metadata
from caraway.graph.wire.operators import decode_operator, encode_operator
from caraway.graph.wire.types import decode_type, encode_type


def encode_dataset(spec: DatasetSpec) -> pb.Dataset:
    """Encode a dataset as its message."""
    return pb.Dataset(
        name=spec.name,
        version=spec.version,
        history_us=spec.history_us,
        fields=[
            pb.Dataset.Field(
                name=f.name,
                dtype=encode_type(f.dtype),
                key=f.key,
                timestamp=f.timestamp,
                erase_key=f.erase_key,
                metadata=encode_metadata(f.metadata),
            )
            for f in spec.fields
        ],
        index=None if spec.index is None else pb.Dataset.Index(online=spec.index.online, offline=spec.index.offline),
        sources=[source_to_wire(s) for s in spec.sources],
        sinks=[sink_to_wire(s) for s in spec.sinks],
        pipelines=[encode_pipeline(p) for p in spec.pipelines],
        expectations=None if spec.expectations is None else _encode_suite(spec.expectations),
        metadata=encode_metadata(spec.metadata),
    )


def decode_dataset(message: pb.Dataset) -> DatasetSpec:
    """Decode a dataset from its message."""
    index = message.index
    return DatasetSpec(
        name=message.name,
        version=message.version,
        history_us=message.history_us,
        fields=tuple(
            FieldSpec(
                name=f.name,
                dtype=decode_type(f.dtype),
                key=f.key,
                timestamp=f.timestamp,
                erase_key=f.erase_key,
                metadata=decode_metadata(f.metadata),
            )
            for f in message.fields
        ),
        index=IndexSpec(online=index.online, offline=index.offline) if message.HasField("index") else None,
        sources=tuple(source_from_wire(s) for s in message.sources),
        sinks=tuple(sink_from_wire(s) for s in message.sinks),
        pipelines=tuple(
            PipelineSpec(
                name=p.name,
                inputs=tuple(p.inputs),
                operator=decode_operator(p.operator),
                env=tuple(p.env),
                source_code=p.source_code,
                metadata=decode_metadata(p.metadata),
            )
            for p in message.pipelines
        ),
        expectations=_decode_suite(message.expectations) if message.HasField("expectations") else None,
        metadata=decode_metadata(message.metadata),
    )


def encode_pipeline(spec: PipelineSpec) -> pb.Pipeline:
    """Encode a pipeline as its message."""
    return pb.Pipeline(
        name=spec.name,
        inputs=spec.inputs,
        operator=encode_operator(spec.operator),
        env=spec.env,
        source_code=spec.source_code,
        metadata=encode_metadata(spec.metadata),
    )


def _encode_suite(suite: ExpectationSuite) -> pb.ExpectationSuite:
    return pb.ExpectationSuite(
        name=suite.name,
        version=suite.version,
        expectations=[pb.ExpectationSuite.Expectation(name=e.name, arguments=e.arguments) for e in suite.expectations],
    )


def _decode_suite(message: pb.ExpectationSuite) -> ExpectationSuite:
    return ExpectationSuite(
        name=message.name,
        version=message.version,
        expectations=tuple(Expectation(name=e.name, arguments=e.arguments) for e in message.expectations),
    )
