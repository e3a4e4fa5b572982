"""`caraway datasets`, `caraway features` and `caraway describe`: the definitions that a branch serves."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.errors import UnknownEntityError

# The parts of a definition that are shown in one line each, in this order, with their headings.
LINES = (
    ("type", "type"),
    ("owner", "owner"),
    ("description", "description"),
    ("tags", "tags"),
    ("version", "version"),
    ("from", "from"),
    ("needs", "needs"),
    ("writes", "writes"),
    ("topics", "topics"),
    ("used_by", "used by"),
)


@command
def datasets(
    *,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """List the datasets that a branch serves: keys, where their rows come from, how far their indexes are."""
    answer = ask("GET", "/datasets", server=server)
    if as_json:
        show_json(answer)
        return
    table = plain_table("dataset", "kind", "keys", "from", "lookup", "behind")
    for found in answer["datasets"]:
        cells = (found["name"], found["kind"], ", ".join(found["keys"]), ", ".join(found["from"]))
        table.add_row(*map(escape, cells), "yes" if found["indexed"] else "no", _lag(found))
    out.print(table if table.row_count else "Nothing was committed to this branch.")


@command
def features(
    featureset: Annotated[
        str | None, typer.Argument(help="Only the features of this one.", metavar="FEATURESET")
    ] = None,
    *,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """List the features that a branch serves: types, and how they are computed."""
    answer = ask("GET", "/features", server=server)
    found = [one for one in answer["features"] if featureset in {None, one["name"].partition(".")[0]}]
    if featureset is not None and not found:
        known = dict.fromkeys(one["name"].partition(".")[0] for one in answer["features"])
        raise UnknownEntityError(f"the branch has no featureset {featureset!r}; it has {', '.join(known) or 'none'}")
    if as_json:
        show_json({**answer, "features": found})
        return
    table = plain_table("feature", "type", "from", "description")
    for one in found:
        table.add_row(*(escape(one[column]) for column in ("name", "type", "from", "description")))
    out.print(table if table.row_count else "The branch has no features.")


@command
def describe(
    name: Annotated[
        str, typer.Argument(help="A dataset, featureset, feature, pipeline (Dataset.name) or source.", metavar="NAME")
    ],
    *,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show a definition: its schema, where it comes from and who uses it."""
    path = f"/definition/{quote(name, safe='')}"
    answer = ask("GET", path, server=server)
    if as_json:
        show_json(answer)
        return
    for found in answer["definitions"]:
        out.print(_picture(found))


def _lag(found: Mapping[str, Any]) -> str:
    if not found["indexed"]:
        return ""
    return "unknown" if found["lag"] is None else f"{found['lag']:,}"


def _picture(found: Mapping[str, Any]) -> RenderableType:
    lines = Table.grid(padding=(0, 2))
    for name, heading in LINES:
        value = found.get(name)
        text = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        if text:
            lines.add_row(Text(heading, style="dim"), Text(text))
    if found.get("indexed"):
        lines.add_row(Text("lookup", style="dim"), Text(f"yes, records behind: {_lag(found)}"))
    if found.get("computed_by"):
        lines.add_row(Text("computed by", style="dim"), Text(found["computed_by"]))
    for job in found.get("jobs", ()):
        lines.add_row(Text("job", style="dim"), Text(f"{job['id']}, {job['mode']}: {job['mode_reason']}"))
    parts: list[RenderableType] = [Text(f"{found['kind']} {found['name']}", style="bold"), Padding(lines, (0, 2))]
    for name, columns in (
        ("fields", ("name", "type", "role", "description")),
        ("features", ("name", "type", "from", "description")),
        ("feeds", ("connector", "dataset")),
    ):
        if name in found:
            table = plain_table(*columns)
            for row in found[name]:
                table.add_row(*(Text(str(row[column])) for column in columns))
            parts.append(Padding(table, (0, 2)))
    if found.get("source_code"):
        parts.append(Padding(Text(found["source_code"].rstrip("\n")), (0, 4)))
    return Group(*parts)
