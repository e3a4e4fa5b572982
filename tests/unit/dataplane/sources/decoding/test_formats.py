"""The law of all formats: the same rows make equal records of a dataset, whichever format they come in."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import inf, nan
from typing import Any

import orjson
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.dataplane.sources.decoding.decoder import Decoder
from caraway.dataplane.sources.decoding.formats import decoder_of
from caraway.errors import DefinitionError
from caraway.graph.systems import RegistryFormat, SchemaRegistry
from tests.registry_server import RegistryServer
from tests.unit.dataplane.sources.decoding import records


@dataclass(frozen=True)
class Written:
    """A format: what writes rows, and what decodes them."""

    write: records.Write
    decoder: Decoder


@pytest.fixture(scope="module")
def formats(shared_registry: RegistryServer) -> Iterator[dict[str, Written]]:
    known = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url=shared_registry.url)
    with ExitStack() as stack:
        client = stack.enter_context(SchemaRegistryClient({"url": shared_registry.url}))
        json, avro, protobuf = (
            stack.enter_context(closing(decoder_of(each, str)))
            for each in ("json", known, replace(known, format=RegistryFormat.PROTOBUF))
        )
        yield {
            "json": Written(records.write_json, json),
            "avro": Written(records.avro_writer(client), avro),
            "protobuf": Written(records.protobuf_writer(client), protobuf),
            "protobuf text": Written(records.protobuf_text_writer(shared_registry), protobuf),
        }


@pytest.mark.spec("connectors:11:9")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(records.ROWS_OF_ALL, max_size=4))
def test_equal_rows_in_all_formats(formats: dict[str, Written], rows: list[Any]) -> None:
    expected = records.stored(rows)
    assert expected.errors == ()
    for name, written in formats.items():
        decoded, faults = written.decoder.decode([written.write(row) for row in rows])
        assert faults == {}, name
        found = records.stored(decoded)
        assert (name, found.errors, found.rows) == (name, (), expected.rows)


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_numbers_that_json_lacks(formats: dict[str, Written], number: float) -> None:
    row = {**orjson.loads(b'{"n":1,"s":"","o":null,"b":true,"ns":[],"cost":null,"place":null}'), "x": number}
    row |= {"raw": b"", "m": {}, "color": "RED", "day": date(2024, 1, 1)}
    row |= {"at": datetime(2024, 1, 1, tzinfo=UTC)}
    for name in ("avro", "protobuf", "protobuf text"):
        decoded, faults = formats[name].decoder.decode([formats[name].write(row)])
        found = records.stored(decoded)
        assert (faults, found.errors) == ({}, ())
        assert found.rows[0][1]["x"] == (None if number != number else number)  # noqa: PLR0124 (NaN)


@given(value=st.binary(max_size=60), data=st.data())
def test_any_bytes_are_a_row_or_a_fault(formats: dict[str, Written], value: bytes, data: st.DataObject) -> None:
    row = data.draw(records.ROWS_OF_ALL)
    for written in formats.values():
        good = written.write(row)
        # A record that was cut, and one of which a part was overwritten.
        at = data.draw(st.integers(0, len(good)))
        bad = [value, good[:at], good[:at] + value + good[at + len(value) :]]
        rows, faults = written.decoder.decode([good, *bad, good])
        assert (rows[0], faults.get(0), faults.get(4)) == (rows[4], None, None)
        for position in range(1, 4):
            if position in faults:
                assert faults[position].startswith("decode: the record ")
                assert isinstance(rows[position], str | int | float | list | None)
            else:
                assert isinstance(rows[position], dict)
        # All that is no row can be shown in a dead letter.
        orjson.dumps([rows[position] for position in faults])


def test_json_that_is_no_object() -> None:
    rows, faults = decoder_of(None, str).decode([b'{"a": 1}', b"{", b"[1]", b"\xff"])
    assert rows == [{"a": 1}, "{", [1], "\N{REPLACEMENT CHARACTER}"]
    assert faults[2] == "decode: the record is a list, an object is expected"
    assert faults.keys() == {1, 2, 3}


def test_another_format_is_refused() -> None:
    with pytest.raises(DefinitionError, match="csv"):
        decoder_of("csv", str)
