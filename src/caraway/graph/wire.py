"""Graphs and commit requests as bytes, and the identity of definitions.

The bytes are canonical: equal values give equal bytes, in every process.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from caraway.errors import InvalidInputError
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
    FeatureSpec,
    FieldSpec,
    Graph,
    IndexSpec,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.wire_connectors import (
    sink_from_wire,
    sink_to_wire,
    source_from_wire,
    source_identity,
    source_to_wire,
)
from caraway.graph.wire_expressions import decode_expr, encode_expr
from caraway.graph.wire_operators import decode_operator, encode_operator
from caraway.graph.wire_types import decode_type, decode_value, encode_type, encode_value

M = TypeVar("M", bound=Message)

# Stands before every fingerprint: a change of the canonical form changes all of them on purpose.
FINGERPRINT_SCHEME = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """What a client sends to commit: a graph, already filtered by `env`."""

    message: str
    graph: Graph
    preview: bool = False
    incremental: bool = False
    backfill: bool = True
    env: str | None = None


def encode_commit(request: CommitRequest) -> bytes:
    """Turn a commit request into bytes."""
    return _bytes(
        pb.CommitRequest(
            message=request.message,
            graph=_encode_graph(request.graph),
            preview=request.preview,
            incremental=request.incremental,
            backfill=request.backfill,
            env=request.env,
        )
    )


def decode_commit(data: bytes) -> CommitRequest:
    """Turn bytes into the commit request.

    Raises:
        InvalidInputError: These are not the bytes of a commit request, or of one from a newer version.
    """
    message = _parsed(pb.CommitRequest(), data, "commit request")
    return CommitRequest(
        message=message.message,
        graph=_decode_graph(message.graph),
        preview=message.preview,
        incremental=message.incremental,
        backfill=message.backfill,
        env=message.env if message.HasField("env") else None,
    )


def encode_graph(graph: Graph) -> bytes:
    """Turn a graph into bytes."""
    return _bytes(_encode_graph(graph))


def decode_graph(data: bytes) -> Graph:
    """Turn bytes into the graph.

    Raises:
        InvalidInputError: These are not the bytes of a graph, or of one from a newer version.
    """
    return _decode_graph(_parsed(pb.Graph(), data, "graph"))


def dataset_fingerprint(spec: DatasetSpec) -> bytes:
    """Return the identity of a dataset's definition: name, version, history, fields, sources and pipelines.

    Metadata, index, sinks, the text of the pipelines (their operators count) and how the systems behind the sources are
    reached are no part of it.
    """
    bare = replace(
        spec,
        metadata=Metadata(),
        index=None,
        sources=tuple(source_identity(s) for s in spec.sources),
        sinks=(),
        fields=tuple(replace(f, metadata=Metadata()) for f in spec.fields),
        pipelines=tuple(replace(p, metadata=Metadata(), source_code="") for p in spec.pipelines),
    )
    return _fingerprint(b"dataset", _encode_dataset(bare))


def featureset_fingerprint(spec: FeaturesetSpec) -> bytes:
    """Return the identity of a featureset's definition: name, features and extractors.

    An extractor's text counts, its pickled form (which isn't the same in every process) doesn't.
    """
    bare = replace(
        spec,
        metadata=Metadata(),
        features=tuple(replace(f, metadata=Metadata()) for f in spec.features),
        extractors=tuple(
            replace(e, metadata=Metadata(), pickled=b"") if isinstance(e, PythonExtractor) else e
            for e in spec.extractors
        ),
    )
    return _fingerprint(b"featureset", _encode_featureset(bare))


def _fingerprint(kind: bytes, message: Message) -> bytes:
    return hashlib.sha256(b"caraway %s %d\0" % (kind, FINGERPRINT_SCHEME) + _bytes(message)).digest()


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _parsed(message: M, data: bytes, kind: str) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise InvalidInputError(f"these bytes are no {kind}") from None
    return message


def _encode_graph(graph: Graph) -> pb.Graph:
    return pb.Graph(
        datasets=[_encode_dataset(d) for d in graph.datasets],
        featuresets=[_encode_featureset(f) for f in graph.featuresets],
    )


def _decode_graph(message: pb.Graph) -> Graph:
    try:
        return Graph(
            datasets=tuple(_decode_dataset(d) for d in message.datasets),
            featuresets=tuple(_decode_featureset(f) for f in message.featuresets),
        )
    except ValueError as error:
        # An operator, function or unit that a newer client knows and we don't.
        raise InvalidInputError(f"this version of Caraway can't read the graph: {error}") from error


def _encode_metadata(metadata: Metadata) -> pb.Metadata:
    return pb.Metadata(
        owner=metadata.owner,
        description=metadata.description,
        tags=metadata.tags,
        deprecated=metadata.deprecated,
        deleted=metadata.deleted,
    )


def _decode_metadata(message: pb.Metadata) -> Metadata:
    return Metadata(
        owner=message.owner,
        description=message.description,
        tags=tuple(message.tags),
        deprecated=message.deprecated,
        deleted=message.deleted,
    )


def _encode_dataset(spec: DatasetSpec) -> pb.Dataset:
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
                metadata=_encode_metadata(f.metadata),
            )
            for f in spec.fields
        ],
        index=None if spec.index is None else pb.Dataset.Index(online=spec.index.online, offline=spec.index.offline),
        sources=[source_to_wire(s) for s in spec.sources],
        sinks=[sink_to_wire(s) for s in spec.sinks],
        pipelines=[
            pb.Pipeline(
                name=p.name,
                inputs=p.inputs,
                operator=encode_operator(p.operator),
                env=p.env,
                source_code=p.source_code,
                metadata=_encode_metadata(p.metadata),
            )
            for p in spec.pipelines
        ],
        metadata=_encode_metadata(spec.metadata),
    )


def _decode_dataset(message: pb.Dataset) -> DatasetSpec:
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
                metadata=_decode_metadata(f.metadata),
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
                metadata=_decode_metadata(p.metadata),
            )
            for p in message.pipelines
        ),
        metadata=_decode_metadata(message.metadata),
    )


def _encode_featureset(spec: FeaturesetSpec) -> pb.Featureset:
    return pb.Featureset(
        name=spec.name,
        features=[
            pb.Featureset.Feature(name=f.name, dtype=encode_type(f.dtype), metadata=_encode_metadata(f.metadata))
            for f in spec.features
        ],
        extractors=[_encode_extractor(e) for e in spec.extractors],
        metadata=_encode_metadata(spec.metadata),
    )


def _decode_featureset(message: pb.Featureset) -> FeaturesetSpec:
    return FeaturesetSpec(
        name=message.name,
        features=tuple(
            FeatureSpec(name=f.name, dtype=decode_type(f.dtype), metadata=_decode_metadata(f.metadata))
            for f in message.features
        ),
        extractors=tuple(_decode_extractor(e) for e in message.extractors),
        metadata=_decode_metadata(message.metadata),
    )


def _encode_extractor(extractor: Extractor) -> pb.Extractor:
    message = pb.Extractor(name=extractor.name, env=extractor.env)
    match extractor:
        case LookupExtractor():
            message.lookup.CopyFrom(
                pb.Extractor.Lookup(
                    dataset=extractor.dataset,
                    field=extractor.field,
                    inputs=extractor.inputs,
                    output=extractor.output,
                    default=encode_value(extractor.default),
                )
            )
        case AliasExtractor():
            message.alias.CopyFrom(
                pb.Extractor.Alias(
                    input=extractor.input, output=extractor.output, default=encode_value(extractor.default)
                )
            )
        case ExpressionExtractor():
            message.expression.CopyFrom(
                pb.Extractor.Expression(
                    expr=encode_expr(extractor.expr), inputs=extractor.inputs, output=extractor.output
                )
            )
        case PythonExtractor():
            message.python.CopyFrom(
                pb.Extractor.Python(
                    inputs=extractor.inputs,
                    outputs=extractor.outputs,
                    datasets=extractor.datasets,
                    version=extractor.version,
                    source_code=extractor.source_code,
                    pickled=extractor.pickled,
                    metadata=_encode_metadata(extractor.metadata),
                )
            )
    return message


def _decode_extractor(message: pb.Extractor) -> Extractor:
    name, env, kind = message.name, tuple(message.env), message.WhichOneof("kind")
    match kind:
        case "lookup":
            lookup = message.lookup
            return LookupExtractor(
                name=name,
                env=env,
                dataset=lookup.dataset,
                field=lookup.field,
                inputs=tuple(lookup.inputs),
                output=lookup.output,
                default=decode_value(lookup.default),
            )
        case "alias":
            alias = message.alias
            return AliasExtractor(
                name=name, env=env, input=alias.input, output=alias.output, default=decode_value(alias.default)
            )
        case "expression":
            expression = message.expression
            return ExpressionExtractor(
                name=name,
                env=env,
                expr=decode_expr(expression.expr),
                inputs=tuple(expression.inputs),
                output=expression.output,
            )
        case "python":
            python = message.python
            return PythonExtractor(
                name=name,
                env=env,
                inputs=tuple(python.inputs),
                outputs=tuple(python.outputs),
                datasets=tuple(python.datasets),
                version=python.version,
                source_code=python.source_code,
                pickled=python.pickled,
                metadata=_decode_metadata(python.metadata),
            )
        case _:
            raise InvalidInputError("an extractor of a kind that this version of Caraway doesn't know")
