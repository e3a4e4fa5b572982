"""Specs and messages have the same fields and members, and each of them has the bytes that it always had."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from caraway.graph.pb.caraway.v1 import graph_pb2, operators_pb2
from caraway.graph.specs import (
    AliasExtractor,
    ExpressionExtractor,
    Extractor,
    LookupExtractor,
    Metadata,
    PythonExtractor,
)
from caraway.graph.systems import CSVFormat
from caraway.graph.wire.codec import Codec
from caraway.graph.wire.differences import WITHOUT_SPEC
from caraway.graph.wire.graphs import CommitRequest, canonical_bytes
from caraway.graph.wire.messages import from_message, to_message
from caraway.graph.wire.structure import codec_of
from tests.unit.graph.samples import samples

SAMPLES = samples()
# The first 16 hexadecimal digits of the SHA-256 of the bytes of each sample. Stored commits are such bytes, and
# fingerprints hash them: an entry may only change when its class gets a field.
DIGESTS: dict[str, str] = json.loads((Path(__file__).parent / "digests.json").read_text())


def test_every_field_of_a_spec_has_one_in_its_message_and_every_member_a_case_and_the_reverse() -> None:
    visited: dict[int, Codec] = {}

    def visit(codec: Codec) -> None:
        if id(codec) not in visited:
            visited[id(codec)] = codec
            for part in codec.parts():
                visit(part)

    # A codec whose two sides differ can't be made.
    visit(codec_of(CommitRequest, graph_pb2.CommitRequest.DESCRIPTOR))
    assert len(visited) > 100


def test_the_samples_set_every_field_of_every_message() -> None:
    used = {name for spec, kind in SAMPLES.values() for name in _set(to_message(spec, kind))}
    declared = {field.full_name for message in _messages(graph_pb2.Graph.DESCRIPTOR) for field in message.fields}
    assert declared - used == set()
    assert not WITHOUT_SPEC & declared


def _messages(message: Any, known: set[str] | None = None) -> Iterator[Any]:
    """Yield a message and all that its fields hold."""
    known = set() if known is None else known
    if message.full_name not in known:
        known.add(message.full_name)
        yield message
        for field in message.fields:
            if field.message_type is not None:
                yield from _messages(field.message_type, known)


def _set(message: Message) -> Iterator[str]:
    """Yield the names of the fields that are set in a message, and in those that it holds."""
    for field, value in message.ListFields():
        yield field.full_name
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            yield from (part.full_name for part in field.message_type.fields)
            held = list(value.values())
        else:
            held = list(value) if field.is_repeated else [value]
        for part in held:
            yield from _set(part)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_class_survives_the_wire_and_has_the_bytes_that_it_always_had(name: str) -> None:
    spec, kind = SAMPLES[name]
    message = to_message(spec, kind)
    assert from_message(message) == spec
    assert sha256(canonical_bytes(message)).hexdigest()[:16] == DIGESTS.get(name)


def test_every_digest_has_a_sample() -> None:
    assert DIGESTS.keys() == SAMPLES.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    name: str
    output: str


def misfits() -> Iterator[tuple[Any, type[Message], str]]:
    annotations = list(Metadata.__annotations__.items())
    one_more = make_dataclass("OneMore", [*annotations, ("team", str)])
    one_less = make_dataclass("OneLess", annotations[1:])
    another = make_dataclass("Another", [*annotations[1:], ("owner", int)])
    absent = make_dataclass("Absent", [*annotations[1:], ("owner", str | None)])
    yield one_more, graph_pb2.Metadata, "no field for OneMore.team"
    yield one_less, graph_pb2.Metadata, "OneLess has no field for caraway.v1.Metadata.owner"
    yield another, graph_pb2.Metadata, "another type"
    yield absent, graph_pb2.Metadata, "can't be absent, as Absent.owner can"
    yield Extractor | Tagged, graph_pb2.Extractor, "no case for Tagged"
    yield LookupExtractor | AliasExtractor | PythonExtractor, graph_pb2.Extractor, "no class for expression"
    other = make_dataclass("AliasExtractor", [("name", str), ("env", tuple[str, ...]), ("input", str)])
    union = LookupExtractor | other | ExpressionExtractor | PythonExtractor
    yield union, graph_pb2.Extractor, "AliasExtractor has no field for caraway.v1.Extractor.Alias.output"


@pytest.mark.parametrize(("hint", "kind", "fact"), [*misfits()], ids=[fact for _, _, fact in misfits()])
def test_a_forgotten_field_or_member_is_an_error(hint: Any, kind: type[Message], fact: str) -> None:
    with pytest.raises(TypeError, match=fact):
        list(codec_of(hint, kind.DESCRIPTOR).parts())


def test_what_is_no_member_of_a_union_cannot_be_sent() -> None:
    with pytest.raises(NotImplementedError, match="CSVFormat"):
        to_message(CSVFormat(), operators_pb2.OperatorTree)
