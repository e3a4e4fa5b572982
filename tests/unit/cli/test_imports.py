"""The modules that a command imports: what a page of help or a request costs lies there, not in the command's work."""

import json
import subprocess
import sys

import pytest

from caraway.cli.commands import SECTIONS

# Each takes a tenth of a second or more to import, or stands for what a client has no use for.
HEAVY = {
    "alembic",
    "cloudpickle",
    "confluent_kafka",
    "grpc",
    "httpx",
    "jsonschema",
    "numpy",
    "pandas",
    "polars",
    "psycopg",
    "pyarrow",
    # Settings are read by pydantic; typer itself needs pydantic to convert options, but not this.
    "pydantic_settings",
    "pyspark",
    "rocksdict",
    "rich.markdown",
    "sqlalchemy",
}
# The modules come last, on a line of their own, behind what the command prints.
PROGRAM = """
import json, sys
from caraway.cli import app
try:
    app(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)))
"""
# Nothing listens there: a command does all that it does before the answer comes.
NOWHERE = ("--url", "http://127.0.0.1:9")


def imported(*arguments: str) -> set[str]:
    found = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in found.stderr, found.stderr
    return set(json.loads(found.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_the_pages_of_caraway_itself_import_no_command(arguments: list[str]) -> None:
    found = imported(*arguments)
    assert not found & HEAVY
    assert not found & {"httpx", "msgspec", "orjson", "psutil", "rich"}
    # typer imports it to convert the options of a command.
    assert "pydantic" not in found or arguments == ["no-such-command"]
    modules = {listed.where.partition(":")[0] for section in SECTIONS for listed in section.commands}
    assert not found & modules


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["branch", "list"],
        ["commit"],
        ["dead-letters", "show"],
        ["erase"],
        ["init"],
        ["preview"],
        ["query"],
        ["secrets"],
        ["secrets", "set"],
        ["wait"],
    ],
)
def test_the_help_of_a_client_command_imports_nothing_heavy(command: list[str]) -> None:
    assert not imported(*command, "--help") & HEAVY


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["branch", "list"],
        ["history"],
        ["datasets"],
        ["query", "User.age", "--with", "User.id=1"],
        ["log", "hook", "end", '{"a": 1}'],
        ["dead-letters", "list"],
        ["erase", "Visits", "--key", "user=1"],
        ["secrets", "list"],
        ["secrets", "delete", "signing-key"],
        ["wait"],
    ],
)
def test_a_client_command_imports_only_what_a_request_needs(command: list[str]) -> None:
    assert not imported(*command, *NOWHERE) & HEAVY
