"""Tests of references to secrets: their look-up, how long values are cached, and that no message has a value."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.secrets import resolver as resolving
from caraway.graph.secrets.resolver import MAX_FILE_BYTES, resolver
from caraway.graph.systems import SecretRef
from caraway.process.settings.settings import SecretsSettings

VALUE = "geheim-42"
BUCKET = "arn:aws:s3:::bucket"


def store(name: str) -> str:
    if name != "own":
        raise UnknownEntityError(f"there is no secret {name!r}")
    return VALUE


def test_each_scheme_is_looked_up_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", VALUE)
    file, link = tmp_path / "password", tmp_path / "link"
    file.write_text(VALUE + "\n", encoding="utf-8")
    link.symlink_to(file)
    found = resolver(store, SecretsSettings(environment=("MY_PASSWORD",), files=(file, link)))
    for arn in ("env:MY_PASSWORD", f"file:{file}", f"file:{link}", "store:own"):
        assert found.resolve(SecretRef(arn=arn)) == VALUE, arn
    assert found.resolve("plain") == "plain"


@pytest.mark.parametrize(
    ("arn", "reason"),
    [
        ("env:MISSING_ONE", "no such variable in its setting secrets.environment; .*caraway secrets set"),
        ("file:/no/such/file", "no such file in its setting secrets.files; .*caraway secrets set"),
        ("store:other", "there is no secret 'other'"),
        ("vault:a/b", "nothing here looks up 'vault'; there are arn, env, file, store"),
        ("arn:aws:secretsmanager:eu-west-1:1:secret:s", "no such secret in its setting secrets.aws"),
        (BUCKET, "no ARN of a secret of AWS Secrets Manager"),
    ],
)
def test_what_is_missing_is_told(arn: str, reason: str) -> None:
    found = resolver(
        store, SecretsSettings(environment=("MISSING_ONE",), files=(Path("/no/such/file"),), aws=(BUCKET,))
    )
    with pytest.raises((UnknownEntityError, UnavailableError), match=reason):
        found.resolve(SecretRef(arn=arn))


def test_what_is_not_listed_is_as_if_it_were_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", VALUE)
    data, listed = tmp_path / "data", tmp_path / "data" / "listed"
    data.mkdir()
    listed.write_text(VALUE)
    (tmp_path / "link").symlink_to(listed)
    (tmp_path / "other").write_text(VALUE)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    files = [listed, tmp_path / "link", tmp_path / "gone", Path("/proc/self/environ"), Path("/dev/fd/0")]
    found = resolver(store, SecretsSettings(environment=("OTHER",), files=tuple(files)), [data])

    def told(arn: str) -> str:
        with pytest.raises(UnknownEntityError) as raised:
            found.resolve(SecretRef(arn=arn))
        return str(raised.value).replace(arn, "it")

    unlisted = [tmp_path / "other", tmp_path / "none", f"{tmp_path}/data/../gone", "relative", "", "/etc/shadow", loop]
    assert len({told(f"file:{name}") for name in (*files[:-1], *unlisted)}) == 1
    assert len({told(f"env:{name}") for name in ("MY_PASSWORD", "OTHER", "NONE", "")}) == 1


@pytest.mark.parametrize("content", [b"\xff", b"x" * (MAX_FILE_BYTES + 1)])
def test_a_file_that_is_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(UnavailableError, match=r"too large|can't be read"):
        resolver(store, SecretsSettings(files=(file,))).resolve(SecretRef(arn=f"file:{file}"))


def test_parts_of_json_are_taken_out_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_JSON", json.dumps({"db": {"password": VALUE, "ports": [1, 2]}}))
    found = resolver(store, SecretsSettings(environment=("MY_JSON", "MY_TEXT")))
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


def test_a_plug_in_brings_a_scheme_and_its_errors_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[__name__]

    def points(group: str, name: str) -> list[EntryPoint]:
        assert group == "caraway.process.secrets"
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
        role, other = "arn:aws:iam::123456789012:role/reader", arn.replace("secret:db", "secret:other")
        found = resolver(store, SecretsSettings(aws=(arn, binary, other, role)))
        assert found.resolve(SecretRef(arn=arn, path=("password",))) == VALUE
        assert found.resolve(SecretRef(arn=arn, role_arn=role, path=("password",))) == VALUE
        with pytest.raises(UnknownEntityError, match="it is binary"):
            found.resolve(SecretRef(arn=binary))
        with pytest.raises(UnknownEntityError, match="AWS has no such secret"):
            found.resolve(SecretRef(arn=other))
        for arn_, role_ in ((f"{arn}x", None), (arn, f"{role}x"), (arn, "")):
            with pytest.raises(UnknownEntityError, match=r"secrets\.aws"):
                found.resolve(SecretRef(arn=arn_, role_arn=role_))
