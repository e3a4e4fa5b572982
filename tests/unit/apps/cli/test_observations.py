"""Commands show observations as the console does: the same rows and columns, and the texts of users as they are."""

import importlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner
from typing_extensions import override

from caraway.apps.cli.application import app
from caraway.apps.cli.output import table_of
from caraway.observations import monitoring, operating
from caraway.observations.observation import Column, Observation, rows_of
from tests.unit.apps.server.console import greenhouse
from tests.unit.apps.server.console.site import Site, engine, job_of, site

HOSTILE = "[red]x[/red] [link=http://evil] <b>&\\["
DECLARED = {
    name: found
    for module in (monitoring, operating)
    for name, found in vars(module).items()
    if isinstance(found, Observation)
}
# A command, the page with the same table, and the columns that only the command has.
SHOWN: list[tuple[str, str, set[str]]] = [
    ("archive", "/console/archive", set()),
    ("skew", "/console/skew", set()),
    ("expectations", "/console/quality", {"last hour", "last day"}),
    ("drift --dataset Pots --all", "/console/drift?dataset=Pots", {"kind"}),
]


class Cells(HTMLParser):
    """Collects the texts of the cells of tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.is_open = False
        self.feed(page)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"td", "th"}:
            self.is_open = True
            self.found.append("")

    @override
    def handle_endtag(self, tag: str) -> None:
        self.is_open = self.is_open and tag not in {"td", "th"}

    @override
    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.found[-1] += data


@pytest.fixture(scope="module")
def console() -> Site:
    found = site(greenhouse.graph())
    found.jobs += [job_of(found.plan, name) for name in ("Wetness", "Moisture")]
    found.engines.append(engine(alive=True))
    return found


def asking(console: Site) -> Callable[..., Any]:
    """Return a function that asks a console's API in place of a server."""

    def ask(_method: str, path: str, *, params: dict[str, str | None] | None = None, **_: object) -> Any:
        given = "&".join(f"{name}={value}" for name, value in (params or {}).items() if value is not None)
        answer = console.get(f"/api/v1{path}?{given}", None, authorization="Bearer admin")
        assert answer.status == 200, answer.text
        return answer.json

    return ask


@pytest.mark.parametrize(("command", "page", "only"), SHOWN)
def test_a_command_shows_the_cells_of_the_page(
    console: Site, monkeypatch: pytest.MonkeyPatch, command: str, page: str, only: set[str]
) -> None:
    name, *options = command.split()
    monkeypatch.setattr(importlib.import_module(f"caraway.apps.cli.{name}"), "ask", asking(console))
    told = CliRunner().invoke(app, [name, *options])
    assert told.exit_code == 0, told.output
    cells = Cells(console.get(page).text).found
    heads = {cell.lower() for cell in cells}
    head, *rows = [re.split(r"  +", line.strip()) for line in told.output.split("\n\n")[0].splitlines()]
    assert set(head) <= heads | only
    assert rows
    for row in rows:
        assert row[0] in cells


def test_the_address_of_a_table_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file:///{'folder/' * 40}table"
    table = {"dataset": "Pots", "kind": "events", "url": url, "written_at": None}
    figures = dict.fromkeys(("records", "rows", "files", "bytes", "messages"), 1)
    command = importlib.import_module("caraway.apps.cli.archive")
    monkeypatch.setattr(command, "ask", lambda *_, **__: {"tables": [{**table, **figures}]})
    told = CliRunner().invoke(app, ["archive"])
    assert told.output.splitlines()[-1] == f"Pots (events): {url}"


@pytest.mark.parametrize("name", DECLARED)
def test_the_columns_of_an_observation_have_names_of_their_own(name: str) -> None:
    names = [column.name for column in DECLARED[name].columns]
    assert len({*names}) == len(names)
    assert all(one == one.lower() for one in names)


def test_texts_of_users_are_shown_as_they_are() -> None:
    observation = Observation(
        title="t",
        rows="rows",
        columns=(Column("a", "a", tone=lambda row: row["tone"]), Column("b", "b", is_code=True)),
        order=lambda row: row["tone"],
    )
    rows = rows_of(observation, {"rows": [{"a": HOSTILE, "b": None, "tone": tone} for tone in ("waits", "bad")]})
    assert [row["tone"] for row in rows] == ["bad", "waits"]
    shown = Console(width=100, file=None, color_system="standard", force_terminal=True)
    with shown.capture() as captured:
        shown.print(table_of(observation, rows))
    assert re.sub(r"\x1b\[[\d;]*m", "", captured.get()).count(HOSTILE) == 2
    assert [colour in captured.get() for colour in ("\x1b[31m", "\x1b[33m")] == [True, True]
