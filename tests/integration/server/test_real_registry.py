"""Tests of the decoders with a real registry, Apicurio."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from struct import pack
from typing import Any

import httpx2
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from caraway.dataplane.sources.decoding.formats import decoder_of
from caraway.errors import UnavailableError
from caraway.graph.systems import RegistryFormat, SchemaRegistry
from tests.services.apicurio import running_apicurio
from tests.unit.dataplane.sources.decoding import records

pytestmark = pytest.mark.full(
    reason="fetches and starts a registry; unit tests have the same schemas on a small server"
)

ROW = {
    "n": 1,
    "x": 2.5,
    "s": "bee",
    "o": None,
    "b": True,
    "raw": b"\xff",
    "day": date(2024, 1, 2),
    "cost": Decimal("1.25"),
    "ns": [1, 2],
    "m": {"a": 1.0},
    "place": {"lat": 1.0, "town": None},
    "color": "BLUE",
    "at": datetime(2024, 1, 1, tzinfo=UTC),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


def decoded(url: str, kind: RegistryFormat, *values: bytes) -> tuple[list[object], dict[int, str]]:
    with closing(decoder_of(SchemaRegistry(format=kind, registry="confluent", url=url), str)) as decoder:
        return decoder.decode(values)


@pytest.mark.parametrize(
    ("kind", "writer"),
    [(RegistryFormat.AVRO, records.avro_writer), (RegistryFormat.PROTOBUF, records.protobuf_writer)],
)
def test_rows_of_confluents_serializers(url: str, kind: RegistryFormat, writer: Any) -> None:
    with SchemaRegistryClient({"url": url}) as client:
        value = writer(client)(ROW)
    rows, faults = decoded(url, kind, value)
    assert (faults, records.stored(rows)) == ({}, records.stored([ROW]))


def test_imports_and_unknown_ids(url: str) -> None:
    def add(subject: str, schema: str, **more: Any) -> int:
        body = {"schemaType": "PROTOBUF", "schema": f'syntax = "proto3"; package x; {schema}', **more}
        number: int = httpx2.post(f"{url}/subjects/{subject}/versions", json=body).json()["id"]
        return number

    add("a.proto", "message A { int64 v = 1; }")
    reference = {"name": "a.proto", "subject": "a.proto", "version": 1}
    number = add("m-value", 'import "a.proto"; message M { A a = 1; }', references=[reference])
    good, unknown = (pack(">bI", 0, each) + b"\0\x0a\x02\x08\x05" for each in (number, 999_999))
    rows, faults = decoded(url, RegistryFormat.PROTOBUF, good, unknown)
    assert (rows[0], [*faults]) == ({"a": {"v": 5}}, [1])
    assert "schema 999999" in faults[1]
    with pytest.raises(UnavailableError, match="check the url"):
        decoded(url.partition("/apis")[0] + "/wrong", RegistryFormat.PROTOBUF, good)
