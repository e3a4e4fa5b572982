"""`caraway capacity`: numbers with units, tables for people, JSON for programs, and errors that name the option."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app

DEFINITIONS = str(Path(__file__).parents[4] / "examples" / "flights" / "definitions.py")
RATES = [f"--rate={name}=20k" for name in ("Departures", "ScheduledFlights", "Weather", "Planes", "Airports")]


def run(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["capacity", DEFINITIONS, *options])
    return done.exit_code, done.output


def test_people_get_parts_shards_and_a_sentence_and_programs_the_same_figures() -> None:
    code, text = run(*RATES, "--queries", "2k", "--hottest", "0.1")
    assert code == 0, text
    assert "job OriginDelays.by_origin" in text
    assert "hardly more" in text
    code, text = run(*RATES, "--queries", "2k", "--hottest", "0.1", "--json")
    found = json.loads(text)
    assert code == 0, text
    assert [one["shards"] for one in found["shards"]] == [1, 2, 4, 8, 16, 32, 64]
    assert next(part["rate"] for part in found["parts"] if part["name"] == "queries") == 2000


@pytest.mark.parametrize("given", ["Departures", "Departures=", "=5", "Departures=20x", "Departures=-1"])
def test_a_number_that_is_not_understood_is_shown_with_an_example(given: str) -> None:
    code, text = run("--rate", given)
    assert code == 1
    assert f"--rate {given}" in text
    assert "an example is --rate Orders=20k" in text
