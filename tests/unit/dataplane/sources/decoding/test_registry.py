"""Tests of the registry's client: what it asks for, whose fault a failure is, and what it says about it."""

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from struct import pack
from typing import Any

import httpx2
import pytest
from fastavro import parse_schema, schemaless_writer

from caraway.dataplane.sources.decoding.decoder import Decoder
from caraway.dataplane.sources.decoding.registry import MAX_ANSWER_BYTES, RegisteredSchema, Registry
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.secrets.resolver import resolver
from caraway.graph.systems import RegistryFormat, SchemaRegistry, SecretRef
from caraway.process.settings.settings import SecretsSettings
from tests.registry_server import RegistryServer

Decoders = Callable[..., Decoder]
ROW = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}


def settings(registry: RegistryServer, **more: Any) -> SchemaRegistry:
    return SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url=registry.url, **more)


def written(schema_id: int, n: int) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(ROW), {"n": n})
    return pack(">bI", 0, schema_id) + stream.getvalue()


def read(where: SchemaRegistry, schema_id: int, **more: Any) -> RegisteredSchema:
    with closing(Registry(where, str, **more)) as registry:
        return registry.read(schema_id)


def test_an_id_is_asked_for_once(registry: RegistryServer, decoders: Decoders) -> None:
    number = registry.add("t-value", ROW)
    decoder = decoders(settings(registry))
    assert decoder.decode([written(number, n) for n in range(3)]) == ([{"n": 0}, {"n": 1}, {"n": 2}], {})
    assert decoder.decode([written(number, 4)]) == ([{"n": 4}], {})
    assert registry.requests == [f"/schemas/ids/{number}"]


def test_an_unknown_id_is_a_fault_of_its_records_only(registry: RegistryServer, decoders: Decoders) -> None:
    number = registry.add("t-value", ROW)
    decoder = decoders(settings(registry))
    values = [written(number, 1), written(77, 2), written(77, 3), written(number, 4)]
    rows, faults = decoder.decode(values)
    assert ([rows[0], rows[3]], [*faults]) == ([{"n": 1}, {"n": 4}], [1, 2])
    assert "schema 77" in faults[1]
    assert registry.requests.count("/schemas/ids/77") == 1
    # Later the registry may have it.
    for _ in range(76):
        registry.add("t-value", {**ROW, "name": f"R{len(registry.requests)}{_}"})
    assert decoder.decode([written(77, 2)]) == ([{"n": 2}], {})


@pytest.mark.parametrize("status", [500, 503, 429, 302])
def test_a_registry_that_fails_is_no_fault_of_a_record(
    registry: RegistryServer, status: int, decoders: Decoders
) -> None:
    number = registry.add("t-value", ROW)
    decoder = decoders(settings(registry))
    registry.broken = status
    with pytest.raises(UnavailableError, match=f"HTTP {status}"):
        decoder.decode([written(number, 1)])
    registry.broken = 0
    assert decoder.decode([written(number, 1)]) == ([{"n": 1}], {})


def test_a_registry_that_is_not_there_is_no_fault_of_a_record(decoders: Decoders) -> None:
    away = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="http://user:pw@127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1 doesn't answer") as caught:
        decoders(away).decode([written(1, 1)])
    assert "pw" not in str(caught.value)


def test_a_wrong_address_is_no_fault_of_a_record(registry: RegistryServer, decoders: Decoders) -> None:
    number = registry.add("t-value", ROW)
    wrong = replace(settings(registry), url=f"{registry.url}/wrong")
    with pytest.raises(UnavailableError, match="check the url"):
        decoders(wrong).decode([written(number, 1)])


def basic(registry: RegistryServer, value: str) -> None:
    registry.basic("ada", value)


LOGINS = [("username and password", "password", basic), ("the token", "token", RegistryServer.bearer)]


@pytest.mark.parametrize("login", LOGINS)
def test_a_changed_secret_takes_effect(
    registry: RegistryServer, decoders: Decoders, tmp_path: Path, login: tuple[str, str, Any]
) -> None:
    spelled, setting, ask_for = login
    number = registry.add("t-value", ROW)
    file = tmp_path / "secret"
    file.write_text("old")
    more: dict[str, Any] = {setting: SecretRef(arn=f"file:{file}")}
    if setting == "password":
        more["username"] = "ada"
    decoder = decoders(settings(registry, **more), resolver(str, SecretsSettings(files=(file,))).resolve)
    ask_for(registry, "new")
    with pytest.raises(UnavailableError, match=f"HTTP 401.*check {spelled}") as caught:
        decoder.decode([written(number, 1)])
    assert "old" not in str(caught.value)
    file.write_text("new")
    assert decoder.decode([written(number, 1)]) == ([{"n": 1}], {})
    assert len(registry.requests) == 3


def test_a_secret_that_changes_meanwhile_is_read_again(registry: RegistryServer, decoders: Decoders) -> None:
    number = registry.add("t-value", ROW)
    registry.bearer("new")
    tokens = iter(["old", "new"])
    decoder = decoders(settings(registry, token=SecretRef(arn="env:X")), lambda _: next(tokens))
    assert decoder.decode([written(number, 1)]) == ([{"n": 1}], {})


def test_credentials_that_are_missing_are_named(registry: RegistryServer, decoders: Decoders) -> None:
    registry.bearer("any")
    with pytest.raises(UnavailableError, match="it asks for credentials"):
        decoders(settings(registry)).decode([written(1, 1)])


def test_credentials_are_not_sent_elsewhere() -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(302, headers={"Location": "http://elsewhere/"})

    where = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="http://here", token="t")
    with pytest.raises(UnavailableError, match="HTTP 302"):
        read(where, 1, transport=httpx2.MockTransport(answer))
    assert asked == ["here"]


def test_an_endless_answer_is_cut() -> None:
    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=(b"x" * 65536 for _ in range(10**9)))

    where = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="http://here")
    with pytest.raises(InvalidInputError, match=f"{MAX_ANSWER_BYTES:,}"):
        read(where, 1, transport=httpx2.MockTransport(answer))


def test_schemas_may_import_others(registry: RegistryServer, decoders: Decoders) -> None:
    registry.add("a", {"type": "record", "name": "x.A", "fields": [{"name": "v", "type": "long"}]})
    a = {"name": "x.A", "subject": "a", "version": 1}
    registry.add("b/c", {"type": "record", "name": "x.B", "fields": [{"name": "a", "type": "x.A"}]}, references=[a])
    b = {"name": "x.B", "subject": "b/c", "version": 1}
    fields = [{"name": "b", "type": "x.B"}, {"name": "a", "type": ["null", "x.A"]}]
    number = registry.add("main", {"type": "record", "name": "M", "fields": fields}, references=[b, a])
    found = read(settings(registry), number)
    assert [name for name, _ in found.imports] == ["x.A", "x.B"]
    value = pack(">bI", 0, number) + b"\x06\x02\x08"
    assert decoders(settings(registry)).decode([value]) == ([{"b": {"a": {"v": 3}}, "a": {"v": 4}}], {})


@pytest.mark.parametrize(("imported", "reason"), [("a", "in a circle"), ("b", "subjects/b/versions/1")])
def test_imports_in_a_circle_or_of_nothing_are_refused(registry: RegistryServer, imported: str, reason: str) -> None:
    registry.add("a", ROW, references=[{"name": "A", "subject": imported, "version": 1}])
    with pytest.raises(InvalidInputError, match=reason):
        read(settings(registry), 1)


def test_a_format_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, decoders: Decoders) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "caraway.dataplane.sources.decoding.avro", raising=False)
    where = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="http://here")
    with pytest.raises(UnavailableError, match=r"pip install caraway\[avro\]"):
        decoders(where)
