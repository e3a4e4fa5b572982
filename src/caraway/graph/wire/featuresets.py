"""Featuresets to protobuf and back."""

from caraway.errors import InvalidInputError
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.specs import (
    AliasExtractor,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
    FeatureSpec,
    LookupExtractor,
    PythonExtractor,
)
from caraway.graph.wire.expressions import decode_expr, encode_expr
from caraway.graph.wire.metadata import decode_metadata, encode_metadata
from caraway.graph.wire.types import decode_type, decode_value, encode_type, encode_value


def encode_featureset(spec: FeaturesetSpec) -> pb.Featureset:
    """Encode a featureset as its message."""
    return pb.Featureset(
        name=spec.name,
        features=[
            pb.Featureset.Feature(name=f.name, dtype=encode_type(f.dtype), metadata=encode_metadata(f.metadata))
            for f in spec.features
        ],
        extractors=[encode_extractor(e) for e in spec.extractors],
        metadata=encode_metadata(spec.metadata),
    )


def decode_featureset(message: pb.Featureset) -> FeaturesetSpec:
    """Decode a featureset from its message."""
    return FeaturesetSpec(
        name=message.name,
        features=tuple(
            FeatureSpec(name=f.name, dtype=decode_type(f.dtype), metadata=decode_metadata(f.metadata))
            for f in message.features
        ),
        extractors=tuple(decode_extractor(e) for e in message.extractors),
        metadata=decode_metadata(message.metadata),
    )


def encode_extractor(extractor: Extractor) -> pb.Extractor:
    """Encode an extractor as its message."""
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
                    element_wise=extractor.element_wise,
                    version=extractor.version,
                    metadata=encode_metadata(extractor.metadata),
                )
            )
        case AliasExtractor():
            message.alias.CopyFrom(
                pb.Extractor.Alias(
                    input=extractor.input,
                    output=extractor.output,
                    default=encode_value(extractor.default),
                    version=extractor.version,
                    metadata=encode_metadata(extractor.metadata),
                )
            )
        case ExpressionExtractor():
            message.expression.CopyFrom(
                pb.Extractor.Expression(
                    expr=encode_expr(extractor.expr),
                    inputs=extractor.inputs,
                    output=extractor.output,
                    version=extractor.version,
                    metadata=encode_metadata(extractor.metadata),
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
                    metadata=encode_metadata(extractor.metadata),
                )
            )
    return message


def decode_extractor(message: pb.Extractor) -> Extractor:
    """Decode an extractor from its message.

    Raises:
        InvalidInputError: The message is of a kind that this version doesn't know.
    """
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
                element_wise=lookup.element_wise,
                version=lookup.version,
                metadata=decode_metadata(lookup.metadata),
            )
        case "alias":
            alias = message.alias
            return AliasExtractor(
                name=name,
                env=env,
                input=alias.input,
                output=alias.output,
                default=decode_value(alias.default),
                version=alias.version,
                metadata=decode_metadata(alias.metadata),
            )
        case "expression":
            expression = message.expression
            return ExpressionExtractor(
                name=name,
                env=env,
                expr=decode_expr(expression.expr),
                inputs=tuple(expression.inputs),
                output=expression.output,
                version=expression.version,
                metadata=decode_metadata(expression.metadata),
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
                metadata=decode_metadata(python.metadata),
            )
        case _:
            raise InvalidInputError("an extractor of a kind that this version of Caraway doesn't know")
