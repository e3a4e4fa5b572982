"""A hostile commit, and another user of the machine, get nothing of a running stack."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, no-any-return, call-arg, valid-type"

import json
import os
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from caraway import dataset, extractor, featureset, field, meta, pipeline
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.report import report_stack
from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset
from caraway.lib import inputs, outputs
from tests.e2e.conftest import World
from tests.timeouts import deadline_in

BRANCH = "private"
HOOK = Webhook(name="private")


def attempts(text: str) -> str:
    """Try to read, connect, fork, look and kill; each answer is the name of an error, or what was got."""
    import json  # noqa: PLC0415 (it travels alone)
    import os  # noqa: PLC0415
    import signal  # noqa: PLC0415
    import socket  # noqa: PLC0415

    wanted = json.loads(text)

    def tried(action: Any) -> str:
        try:
            return str(action())
        except BaseException as error:  # noqa: BLE001
            return type(error).__name__

    def read(path: str) -> str:
        with open(path, "rb") as file:  # noqa: PTH123
            return repr(file.read(20))

    found = {path: tried(lambda path=path: read(path)) for path in wanted["files"]}
    found |= {
        f"port {port}": tried(lambda port=port: socket.create_connection(("127.0.0.1", port), 2))
        for port in wanted["ports"]
    }
    found["environment"] = ",".join(sorted(name for name in os.environ if name.startswith(("CARAWAY", "AWS"))))
    found["parent"] = tried(lambda: os.kill(os.getppid(), signal.SIGKILL))
    found["fork"] = tried(os.fork)
    found["user"] = str(os.getuid())
    return json.dumps(found)


@meta(owner="e2e@example.com")
@source(HOOK.endpoint("tries"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Tries:
    number: int = field(key=True)
    text: str
    at: datetime = field(timestamp=True)


@meta(owner="e2e@example.com")
@dataset(index=True)
class Found:
    number: int = field(key=True)
    text: str
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Tries)
    def attempt(cls, tries: Dataset):
        return tries.assign("text", str, lambda frame: frame["text"].map(attempts))


@meta(owner="e2e@example.com")
@featureset
class Attempt:
    text: str
    found: str

    @extractor
    @inputs("text")
    @outputs("found")
    def attempt(cls, ts, text):
        return text.map(attempts).rename("found")


def test_committed_code_gets_nothing_of_the_platform(world: World) -> None:
    data = world.stack.settings.data_dir
    inside = ("secret.key", "run/stack.json", "run/token", "postgres/password", "kafka/password")
    files = [*(str(data / name) for name in inside), "/etc/shadow", "/proc/1/environ", f"/proc/{os.getpid()}/environ"]
    assert all(Path(name).exists() for name in files)
    ports = [part.port for part in world.stack.status() if part.port]
    wanted = pd.Series([json.dumps({"files": files, "ports": ports})])
    with closing(Client(world.url, branch=BRANCH)) as client:
        client.init_branch(BRANCH)
        client.commit("private", [Tries, Found], [Attempt])
        answered = client.query([Attempt.text], [Attempt.found], pd.DataFrame({"Attempt.text": wanted}))
        rows = pd.DataFrame({"number": [1], "text": wanted, "at": ["2026-01-01T00:00:00Z"]})
        client.log("private", "tries", rows)
        deadline = deadline_in(120)
        while not (found := client.lookup(Found, pd.DataFrame({"number": [1]}), ["text"]))[1][0]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    for text in (answered["Attempt.found"][0], found[0].iloc[0]):
        got: dict[str, str] = json.loads(str(text))
        user = int(got.pop("user"))
        assert user not in {0, os.getuid()} or os.getuid() != 0
        assert got.pop("environment") == ""
        assert set(got.values()) == {"PermissionError"}, got
    assert "no network" in report_stack(DataFolder(data)).functions


def test_nobody_else_reads_the_data_folder(world: World) -> None:
    data = world.stack.settings.data_dir
    files = [path for path in (data, *data.rglob("*")) if not path.is_symlink()]
    assert len(files) > 100
    # Spark marks its copies of jars as programs, for everybody; nobody else can read them, or come to them.
    modes = {path: path.stat().st_mode & (0o066 if path.suffix == ".jar" else 0o077) for path in files if path.exists()}
    assert {path: oct(mode) for path, mode in modes.items() if mode} == {}


def test_the_broker_knows_nobody_without_its_password(world: World) -> None:
    address = str(world.stack.settings.kafka.bootstrap_servers)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=3)
