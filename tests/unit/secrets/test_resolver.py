"""Tests of references to secrets: their look-up, how long values are cached, and that no message has a value."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.systems import SecretRef
from caraway.secrets import resolver as resolving
from caraway.secrets.resolver import Resolver, resolver

VALUE = "geheim-42"


def store(name: str) -> str:
    if name != "own":
        raise UnknownEntityError(f"there is no secret {name!r}")
    return VALUE


def test_each_scheme_is_looked_up_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", VALUE)
    (tmp_path / "password").write_text(VALUE + "\n", encoding="utf-8")
    found = resolver(store)
    for arn in ("env:MY_PASSWORD", f"file:{tmp_path}/password", "store:own"):
        assert found.resolve(SecretRef(arn=arn)) == VALUE, arn
    assert found.resolve("plain") == "plain"


@pytest.mark.parametrize(
    ("arn", "reason"),
    [
        ("env:MISSING_ONE", "the environment has no variable MISSING_ONE"),
        ("file:/no/such/file", "there is no such file"),
        ("store:other", "there is no secret 'other'"),
        ("vault:a/b", "nothing here looks up 'vault'; there are arn, env, file, store"),
        ("arn:aws:s3:::bucket", "no ARN of a secret of AWS Secrets Manager"),
    ],
)
def test_what_is_missing_is_told(arn: str, reason: str) -> None:
    with pytest.raises((UnknownEntityError, UnavailableError), match=reason):
        resolver(store).resolve(SecretRef(arn=arn))


def test_parts_of_json_are_taken_out_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_JSON", json.dumps({"db": {"password": VALUE, "ports": [1, 2]}}))
    found = resolver(store)
    ref = SecretRef(arn="env:MY_JSON", path=("db", "password"))
    assert found.resolve(ref) == VALUE
    assert found.resolve(SecretRef(arn="env:MY_JSON", path=("db", "ports"))) == "[1, 2]"
    for path in (("none",), ("db", "password", "deeper"), ("db", "ports", "first")):
        with pytest.raises(UnknownEntityError, match="has no part") as raised:
            found.resolve(SecretRef(arn="env:MY_JSON", path=path))
        assert VALUE not in str(raised.value)
        assert raised.value.__cause__ is None
    monkeypatch.setenv("MY_TEXT", VALUE)
    with pytest.raises(UnknownEntityError, match=r"has no part \['a'\]"):
        found.resolve(SecretRef(arn="env:MY_TEXT", path=("a",)))


def test_values_are_kept_for_a_while_and_forgotten_when_refused() -> None:
    now, asked = [0.0], []

    def look_up(reference: str, role_arn: str | None) -> str:
        asked.append((reference, role_arn))
        return f"value {len(asked)}"

    found = Resolver({"x": look_up}, kept_s=30, clock=lambda: now[0])
    ref, other = SecretRef(arn="x:a"), SecretRef(arn="x:a", role_arn="role")
    assert [found.resolve(ref), found.resolve(ref), found.resolve(other)] == ["value 1", "value 1", "value 2"]
    now[0] = 29.9
    assert found.resolve(ref) == "value 1"
    found.forget(ref)
    assert found.resolve(ref) == "value 3"
    now[0] = 60.0
    assert found.resolve(ref) == "value 4"
    assert asked == [("x:a", None), ("x:a", "role"), ("x:a", None), ("x:a", None)]


def test_a_plug_in_brings_a_scheme_and_its_errors_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[__name__]

    def points(group: str, name: str) -> list[EntryPoint]:
        assert group == "caraway.secrets"
        return [EntryPoint(name, f"{module.__name__}:{name}_lookup", group)] if name in {"good", "bad"} else []

    monkeypatch.setattr(resolving, "entry_points", points)
    found = resolver(store)
    assert found.resolve(SecretRef(arn="good:a", role_arn="r")) == "good:a as r"
    with pytest.raises(UnavailableError, match=r"secret bad:a can't be looked up \(RuntimeError\)$"):
        found.resolve(SecretRef(arn="bad:a"))


def good_lookup(reference: str, role_arn: str | None) -> str:
    return f"{reference} as {role_arn}"


def bad_lookup(reference: str, role_arn: str | None) -> str:
    raise RuntimeError(f"it is {VALUE}")


@pytest.mark.spec("connectors:11:18")
@pytest.mark.slow
def test_secrets_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("secretsmanager", region_name="eu-west-1")
        arn = client.create_secret(Name="db", SecretString=json.dumps({"password": VALUE}))["ARN"]
        binary = client.create_secret(Name="blob", SecretBinary=b"x")["ARN"]
        found = resolver(store)
        role = "arn:aws:iam::123456789012:role/reader"
        assert found.resolve(SecretRef(arn=arn, path=("password",))) == VALUE
        assert found.resolve(SecretRef(arn=arn, role_arn=role, path=("password",))) == VALUE
        with pytest.raises(UnknownEntityError, match="it is binary"):
            found.resolve(SecretRef(arn=binary))
        with pytest.raises(UnknownEntityError, match="AWS has no such secret"):
            found.resolve(SecretRef(arn=arn.replace("secret:db", "secret:other")))
