"""Tests of the commands that talk to a server, as users type them, with a server, Kafka, Postgres and RocksDB."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from caraway import Client, connectors, dataset, field, meta, pipeline
from caraway.apps.cli import app
from caraway.lib.params import inputs
from tests.integration.server.server_process import ServerProcess, eventually, records

runner = CliRunner()
HOOK = connectors.Webhook(name="greenhouse")
BRANCH = "commands"


@meta(owner="a@b.co", description="Plants and how tall they are.")
@connectors.source(HOOK.endpoint("plants"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Plants:
    plant: int = field(key=True, erase_key=True)
    height: int
    at: datetime = field(timestamp=True)


def later_plants() -> Any:
    """Return the dataset as it is after its change: heights have fractions."""

    @meta(owner="a@b.co")
    @connectors.source(HOOK.endpoint("plants"), disorder="1h", cdc="upsert")
    @dataset(index=True, version=2)
    class Plants:
        plant: int = field(key=True, erase_key=True)
        height: float
        at: datetime = field(timestamp=True)

    return Plants


def heights_of(plants: Any, *, deleted: bool = False) -> Any:
    """Return a dataset that a job computes from the changed one."""

    @meta(owner="a@b.co", deleted=deleted)
    @dataset(index=True)
    class Heights:
        plant: int = field(key=True)
        height: float
        at: datetime = field(timestamp=True)

        @pipeline
        @inputs(plants)
        def copy(cls, rows: Any) -> Any:
            return rows

    return Heights


def plant(number: int, height: object) -> dict[str, object]:
    return {"plant": number, "height": height, "at": "2026-01-01T00:00:00Z"}


@pytest.fixture
def branch(server: ServerProcess) -> Iterator[Client]:
    with Client(str(server.settings.server.url), branch=BRANCH) as client:
        client.init_branch(BRANCH)
        client.commit("plants", datasets=[Plants])
        yield client
        client.delete_branch(BRANCH)


def caraway(server: ServerProcess, *arguments: str, given: str | None = None, branch: str = BRANCH) -> Result:
    options = ["--url", str(server.settings.server.url), "--branch", branch]
    return runner.invoke(app, [*arguments, *options], input=given, env={"COLUMNS": "200"})


def told(server: ServerProcess, *arguments: str, branch: str = BRANCH) -> Any:
    found = caraway(server, *arguments, "--json", branch=branch)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_rows_are_logged_looked_up_and_queried(server: ServerProcess, branch: Client, tmp_path: Path) -> None:
    file = tmp_path / "plants.csv"
    file.write_text("plant,height,at\n1,30,2026-01-01T00:00:00Z\n2,40,2026-01-01T00:00:00Z\n")
    assert caraway(server, "log", "greenhouse", "plants", str(file)).stdout == "2 rows accepted\n"
    lines = "".join(f"{json.dumps(plant(number, 1))}\n" for number in range(3, 8))
    assert caraway(server, "log", "greenhouse", "plants", "--batch", "2", given=lines).stdout == "5 rows accepted\n"
    pd.DataFrame({"plant": [8], "height": [9], "at": [pd.Timestamp("2026-01-01", tz="UTC")]}).to_parquet(
        tmp_path / "more.parquet"
    )
    assert told(server, "log", "greenhouse", "plants", str(tmp_path / "more.parquet"))["accepted"] == 1

    def heights() -> object:
        asked = json.dumps({"plant": [1, 2, 7, 8]})
        return caraway(server, "lookup", "Plants", "--input", asked, "--field", "height", "-o", "csv").stdout

    expected = "found,plant,height\ntrue,1,30\ntrue,2,40\ntrue,7,1\ntrue,8,9\n"
    eventually(lambda: heights() == expected, lambda: f"{heights()}{server.said()}")
    one = caraway(server, "lookup", "Plants", "--with", "plant=1", "--json")
    assert json.loads(one.stdout)["height"] == [30]
    missing = caraway(server, "lookup", "Plants", "--with", "plant=99")
    assert (missing.exit_code, "false" in missing.stdout) == (1, True)
    stdin = caraway(server, "query", "State.answer", "-o", "csv", given='{"Tap.pot": 1}\n', branch="main")
    assert stdin.stdout == "State.answer\n42\n"


def test_a_refused_row_is_listed_shown_and_replayed_once(server: ServerProcess, branch: Client, kafka: str) -> None:
    refused = caraway(server, "log", "greenhouse", "plants", json.dumps([plant(1, 1), plant(50, 2.5)]))
    assert refused.exit_code == 1
    assert "1 row accepted, 1 rejected" in refused.stdout
    assert "row 1, field height (Plants)" in refused.stderr
    (letter,) = told(server, "dead-letters", "list", "--dataset", "Plants")["dead_letters"]
    assert (letter["from"], letter["replayable"], letter["replayed_at"]) == ("greenhouse/plants", True, None)
    assert "height" in letter["reason"]
    assert letter["id"] in caraway(server, "dead-letters", "list").stdout
    shown = told(server, "dead-letters", "show", letter["id"])
    assert shown["row"] == plant(50, 2.5)
    # Other branches have no such dataset, and don't see its rows.
    assert told(server, "dead-letters", "list", "--dataset", "Plants", branch="main")["dead_letters"] == []
    assert "no dead letter" in caraway(server, "dead-letters", "show", letter["id"], branch="main").stderr

    still = caraway(server, "dead-letters", "replay", letter["id"])
    assert still.exit_code == 1
    assert "still doesn't fit Plants: height" in still.stderr
    # No engine runs here, so a commit with a job waits, and its dataset has a topic that a replay would miss.
    fractions = later_plants()
    branch.commit("fractions, and a job", datasets=[fractions, heights_of(fractions)])
    early = caraway(server, "dead-letters", "replay", letter["id"])
    assert early.exit_code == 1
    assert "Plants is being rebuilt by the branch's newest commit" in early.stderr
    assert "caraway wait --commit" in early.stderr
    branch.commit("fractions", datasets=[fractions, heights_of(fractions, deleted=True)])
    assert told(server, "wait", "--commit")["seconds"] >= 0
    assert told(server, "dead-letters", "replay", letter["id"])["replays"][0]["already"] is False
    assert told(server, "dead-letters", "replay", letter["id"])["replays"][0]["already"] is True
    (after,) = told(server, "dead-letters", "list", "--dataset", "Plants")["dead_letters"]
    assert after["replayed_at"] is not None
    # The topic has one record of that plant, whatever else was replayed.
    topic = newest_topic(server)
    assert len(records(kafka, topic)) == 1
    found = caraway(server, "lookup", "Plants", "--with", "plant=50", "-o", "csv", "--field", "height")
    eventually(
        lambda: "true,50,2.5" in caraway(server, "lookup", "Plants", "--with", "plant=50", "-o", "csv").stdout,
        lambda: found.output + server.said(),
    )


def newest_topic(server: ServerProcess) -> str:
    (described,) = told(server, "describe", "Plants")["definitions"]
    assert described["version"] == 2
    (topic,) = described["topics"]
    return str(topic)


def test_dead_letters_come_in_pages(server: ServerProcess, branch: Client) -> None:
    caraway(server, "log", "greenhouse", "plants", json.dumps([plant(number, "tall") for number in range(5)]))
    assert "the `next` of an earlier answer" in caraway(server, "dead-letters", "list", "--before", "x").stderr
    assert "no id of a dead letter" in caraway(server, "dead-letters", "show", "x").stderr
    found: list[str] = []
    before: tuple[str, ...] = ()
    while True:
        page = told(server, "dead-letters", "list", "--dataset", "Plants", "--limit", "2", *before)
        found += [letter["id"] for letter in page["dead_letters"]]
        if page["next"] is None:
            break
        before = ("--before", page["next"])
    assert len(found) == len(set(found)) >= 5
    numbers = [int(letter.partition("-")[2]) for letter in found]
    assert numbers == sorted(numbers, reverse=True)


def test_rows_of_erased_keys_are_no_longer_shown_and_the_answer_says_what_stays(
    server: ServerProcess, branch: Client
) -> None:
    caraway(server, "log", "greenhouse", "plants", json.dumps([plant(600, "secret")]))
    known = told(server, "dead-letters", "list", "--dataset", "Plants")["dead_letters"]
    (letter,) = [each for each in known if told(server, "dead-letters", "show", each["id"])["row"]["plant"] == 600]
    erased = caraway(server, "erase", "Plants", "--with", "plant=600")
    assert erased.exit_code == 0, erased.output
    assert "clear text stays in" in erased.stderr
    (described,) = told(server, "describe", "Plants")["definitions"]
    assert f"topic {described['topics'][0]}" in erased.stderr
    assert "topic caraway.dead-letters" in erased.stderr
    assert caraway(server, "dead-letters", "show", letter["id"]).exit_code == 1
    after = told(server, "dead-letters", "list", "--dataset", "Plants")["dead_letters"]
    assert letter["id"] not in [each["id"] for each in after]
    status = told(server, "erase", "Plants", "--status")
    assert [place["where"] for place in status["remaining"]][
        -1
    ] == "backups, and the systems that sent the rows or that sinks write"
