"""The identity of definitions: SHA-256 over the number of the scheme and the canonical bytes of what counts.

An identity never contains owners, descriptions (also as docstrings) and flags; pickles, whose bytes vary between
processes; the environments in which a part is selected; or the order in which sources were named.
"""

import hashlib
import tokenize
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from caraway.graph import connectors, specs, systems
from caraway.graph.expectations import strict_part
from caraway.graph.functions import PythonFunction
from caraway.graph.pb.caraway.v1 import connectors_pb2, graph_pb2
from caraway.graph.sources import Computed, SinkSpec, SourceSpec
from caraway.graph.trees import without_pickles
from caraway.graph.wire.graphs import canonical_bytes, encode_graph
from caraway.graph.wire.messages import to_message

# The version of the rules by which fingerprints are made. The number precedes all hashed bytes and is stored beside the
# hash. Raise it if other parts of a definition are to be hashed, or if the canonical bytes change; all fingerprints
# change then.
FINGERPRINT_SCHEME = 3


def dataset_fingerprint(spec: specs.DatasetSpec) -> bytes:
    """Return the identity of a dataset's definition.

    These are its name, version, history, fields, sources, pipelines and strict expectations. The identity leaves out
    the index, sinks, other expectations, erase keys, the text of the pipelines (their operators count), and the
    addresses and credentials of the systems behind the sources.
    """
    return _digest("dataset", to_message(_bare_dataset(spec), graph_pb2.Dataset))


def pipeline_fingerprint(spec: specs.PipelineSpec) -> bytes:
    """Return the identity of a pipeline: name, inputs and operators, with the texts of users' functions in them."""
    return _digest("pipeline", to_message(_bare_pipeline(spec), graph_pb2.Pipeline))


def source_fingerprint(spec: SourceSpec) -> bytes:
    """Return the identity of a source: all but its system's address and credentials, and the interval of polling."""
    return _digest("source", to_message(_bare_source(spec), connectors_pb2.Source))


def sink_fingerprint(spec: SinkSpec) -> bytes:
    """Return the identity of a sink.

    The identity leaves out its system's address and credentials, the interval of writing, and how requests are sent.
    """
    bare = _without_address(spec.connector)
    if isinstance(bare, connectors.HTTPConnector):
        bare = replace(bare, limit=None, headers=())
    return _digest("sink", to_message(replace(spec, connector=bare, every_us=None, env=()), connectors_pb2.Sink))


def extractor_fingerprint(extractor: specs.Extractor) -> bytes:
    """Return the identity of an extractor: version, inputs, outputs, and its expression or the text of its function.

    The docstring of the function is its description, which is no part of the identity.
    """
    return _digest("extractor", to_message(_bare_extractor(extractor), graph_pb2.Extractor))


def graph_fingerprint(graph: specs.Graph) -> str:
    """Return the hash of a whole graph as it is stored, metadata and pickles included, after its scheme."""
    return f"graph-{FINGERPRINT_SCHEME}:{hashlib.sha256(encode_graph(graph)).hexdigest()}"


def source_identity(spec: SourceSpec) -> SourceSpec:
    """Return a source as it counts for the identity of its dataset.

    The identity leaves out the address, the credentials and the interval of polling of its system, and the pickles of
    functions: they may change without a new version of the dataset.
    """
    return replace(
        spec,
        connector=_without_address(spec.connector),
        every_us=None,
        preproc=tuple(
            (name, _without_pickle(made) if isinstance(made, Computed) else made) for name, made in spec.preproc
        ),
        where=None if spec.where is None else _without_pickle(spec.where),
    )


def _without_pickle(computed: Computed) -> Computed:
    return (
        replace(computed, by=replace(computed.by, pickled=b"")) if isinstance(computed.by, PythonFunction) else computed
    )


def _without_address(connector: connectors.Connector) -> connectors.Connector:
    if not isinstance(connector, connectors.SystemConnector):
        return connector
    bare = systems.RegisteredSystem(kind=connector.kind, name=connector.system_name)
    changed: dict[str, Any] = {"system": bare}
    registry = getattr(connector, "format", None)
    if isinstance(registry, systems.SchemaRegistry):
        changed["format"] = replace(registry, url="", username=None, password=None, token=None)
    return replace(connector, **changed)


def _bare_dataset(spec: specs.DatasetSpec) -> specs.DatasetSpec:
    return replace(
        spec,
        metadata=specs.NO_METADATA,
        index=None,
        sinks=(),
        expectations=strict_part(spec.expectations),
        fields=tuple(replace(f, metadata=specs.NO_METADATA, erase_key=False) for f in spec.fields),
        sources=tuple(sorted(map(_bare_source, spec.sources), key=_source_bytes)),
        pipelines=tuple(sorted(map(_bare_pipeline, spec.pipelines), key=lambda p: p.name)),
    )


def _bare_pipeline(spec: specs.PipelineSpec) -> specs.PipelineSpec:
    return replace(spec, operator=without_pickles(spec.operator), env=(), source_code="", metadata=specs.NO_METADATA)


def _bare_source(spec: SourceSpec) -> SourceSpec:
    return replace(source_identity(spec), env=())


def _source_bytes(spec: SourceSpec) -> bytes:
    return canonical_bytes(to_message(spec, connectors_pb2.Source))


def _bare_extractor(extractor: specs.Extractor) -> specs.Extractor:
    bare = replace(extractor, env=(), metadata=specs.NO_METADATA)
    if not isinstance(bare, specs.PythonExtractor):
        return bare
    return replace(bare, pickled=b"", source_code=_without_docstring(bare.source_code))


def _without_docstring(text: str) -> str:
    """Return the text of a function, and of what it uses, without the function's docstring."""
    lines = text.splitlines(keepends=True)
    # Only the function itself is read: the texts of captured values follow it, and they needn't be Python.
    tokens = tokenize.generate_tokens(iter(lines).__next__)
    try:
        while (token := next(tokens)).type != tokenize.INDENT:
            pass
        first = after = token.start[0] - 1
        strings = 0
        while (token := next(tokens)).type == tokenize.STRING and token.string[0] in "'\"rRuU":
            strings += 1
        if not strings or token.type != tokenize.NEWLINE:
            return text
        after = token.end[0]
        while after < len(lines) and not lines[after].strip():
            after += 1
    except (tokenize.TokenError, IndentationError, StopIteration):
        return text
    return "".join([*lines[:first], *lines[after:]])


def _digest(kind: str, message: Message) -> bytes:
    return hashlib.sha256(f"caraway {kind} {FINGERPRINT_SCHEME}\0".encode() + canonical_bytes(message)).digest()
