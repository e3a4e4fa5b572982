"""The modules that a command imports: their import is most of the cost of a page of help or a request."""

import json
import subprocess
import sys

import pytest

from caraway.apps.cli.commands import SECTIONS

# Each takes a tenth of a second or more to import, or is a library that a client doesn't use.
HEAVY = {
    "alembic",
    "cloudpickle",
    "confluent_kafka",
    "grpc",
    "httpx2",
    "jsonschema",
    "numpy",
    "pandas",
    "polars",
    "psycopg",
    "pyarrow",
    # pydantic reads the settings; typer needs pydantic itself to convert options, but not this module.
    "pydantic_settings",
    "pyspark",
    "rocksdict",
    "rich.markdown",
    "sqlalchemy",
}
# The program prints the imported modules on a last line of their own, after the command's output.
PROGRAM = """
import json, sys
from caraway.apps.cli import app
try:
    app(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)))
"""
# No server listens at this address, so a command runs up to its request.
NOWHERE = ("--url", "http://127.0.0.1:9")


def imported(*arguments: str) -> set[str]:
    found = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in found.stderr, found.stderr
    return set(json.loads(found.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_the_pages_of_caraway_itself_import_no_command(arguments: list[str]) -> None:
    found = imported(*arguments)
    assert not found & HEAVY
    assert not found & {"httpx2", "msgspec", "orjson", "psutil", "rich"}
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
        ["erase", "Visits", "--with", "user=1"],
        ["secrets", "list"],
        ["secrets", "delete", "signing-key"],
        ["wait"],
    ],
)
def test_a_client_command_imports_only_what_a_request_needs(command: list[str]) -> None:
    assert not imported(*command, *NOWHERE) & HEAVY
