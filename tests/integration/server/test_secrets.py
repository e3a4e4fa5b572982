"""Tests of secrets: they are kept sealed, used by extractors, and found nowhere in clear text."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

import json
from typing import Any

import pandas as pd
import psycopg
import pytest
from typer.testing import CliRunner

from caraway import Client, extractor, featureset, meta
from caraway.apps.cli import app
from caraway.errors import RemoteError
from caraway.lib import secrets
from caraway.lib.params import inputs, outputs
from caraway.testing import MockClient
from tests.integration.databases import content_of
from tests.integration.server.server_process import ServerProcess, eventually

VALUE = "hunter2-of-the-garden"
NEWER = "hunter3-of-the-garden"


@meta(owner="a@b.co")
@featureset
class Signed:
    number: int
    length: int

    @extractor
    @inputs("number")
    @outputs("length")
    def sign(cls, ts, numbers):
        value = secrets.get("signing-key")
        if (numbers == 13).any():
            raise ValueError(f"can't sign with {value}")
        return (numbers + len(value)).rename("length")


def lengths(client: Client, number: int) -> list[Any]:
    frame = pd.DataFrame({"Signed.number": [number]})
    found: list[Any] = client.query([Signed.number], [Signed.length], frame)["Signed.length"].tolist()
    return found


def scenario(client: Client) -> None:
    client.commit("signed", featuresets=[Signed], incremental=True)
    client.add_secret("signing-key", VALUE)
    assert client.get_secret("signing-key") == VALUE
    assert lengths(client, 1) == [1 + len(VALUE)]
    client.update_secret("signing-key", VALUE + "!")
    assert lengths(client, 1) == [2 + len(VALUE)]
    # Secrets belong to no branch, because the jobs and extractors of several may be the same.
    client.init_branch("secretive")
    assert client.get_secret("signing-key") == VALUE + "!"
    client.delete_branch("secretive")
    client.update_secret("another", "made by an update")
    assert client.get_secret("another") == "made by an update"
    client.delete_secret("another")
    client.delete_secret("signing-key")
    for ask in (
        lambda: client.get_secret("signing-key"),
        lambda: client.delete_secret("signing-key"),
        lambda: lengths(client, 1),
    ):
        with pytest.raises(Exception, match="signing-key"):
            ask()


@pytest.mark.spec("featuresets:6:15")
def test_the_mock_and_a_server_do_the_same(server: ServerProcess) -> None:
    scenario(MockClient())
    with Client(str(server.settings.server.url)) as client:
        scenario(client)


def test_nobody_finds_a_value(server: ServerProcess, database: str) -> None:
    run = CliRunner()
    at = ["--url", str(server.settings.server.url)]
    kept = run.invoke(app, ["secrets", "set", "signing-key", *at], input=NEWER + "\n")
    assert (kept.exit_code, kept.stdout) == (0, "")
    with Client(str(server.settings.server.url)) as client:
        client.commit("signed", featuresets=[Signed], incremental=True)
        assert lengths(client, 1) == [1 + len(NEWER)]
        with pytest.raises(RemoteError, match=r"raised ValueError: can't sign with \*\*\*") as raised:
            lengths(client, 13)
        assert NEWER not in str(raised.value)
        with pytest.raises(RemoteError, match=r"^there is a secret 'signing-key' already"):
            client.add_secret("signing-key", "other")
    for name, body in (("a b", {"value": "v"}), ("c", {}), ("c", {"value": 7}), ("c", {"value": ""})):
        assert server.http.post(f"/secret/{name}", json=body).status_code == 400
    listed = run.invoke(app, ["secrets", "list", "--json", *at])
    assert "signing-key" in [secret["name"] for secret in json.loads(listed.stdout)["secrets"]]

    told = [kept.output, listed.output, run.invoke(app, ["secrets", "list", *at]).output]
    told += [run.invoke(app, ["explain", "query", "Signed.length", "--input", '{"Signed.number": [1]}', *at]).output]
    told += [server.http.get(path).text for path in ("/status", "/metrics", "/branch/log", "/ledger", "/secrets")]
    told += [content_of(database), server.log_file.read_text()]
    assert "signing-key" in told[-2]
    for text in told:
        for hidden in (NEWER, VALUE):
            assert hidden not in text
    # The audit log has the accounts that read and changed it.
    with psycopg.connect(database) as connection:
        acts = connection.execute("SELECT action, detail, outcome FROM audit WHERE detail LIKE 'secret/%'").fetchall()
    assert {("update_secret", "secret/signing-key", "done"), ("add_secret", "secret/signing-key", "conflict")} <= set(
        acts
    )

    # With a new key the old values still open, and are sealed anew.
    data = ["--data", str(server.settings.data_dir)]
    before = content_of(database)
    turned = run.invoke(app, ["secrets", "rotate", "--database", database, *data])
    assert turned.exit_code == 0, turned.output
    with psycopg.connect(database) as connection:
        sealed = [row[0] for row in connection.execute("SELECT encode(sealed, 'escape') FROM secrets")]
    assert sealed
    assert not [text for text in sealed if text in before]
    with Client(str(server.settings.server.url)) as client:
        eventually(lambda: client.get_secret("signing-key") == NEWER, server.said)
        assert lengths(client, 1) == [1 + len(NEWER)]
    gone = run.invoke(app, ["secrets", "delete", "signing-key", *at])
    assert gone.exit_code == 0, gone.output
    assert run.invoke(app, ["secrets", "delete", "signing-key", *at]).exit_code == 1
