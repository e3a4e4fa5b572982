"""`caraway inspect`, `caraway lineage` and `caraway xray`: what a branch holds, where it comes from, and its rows."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.dtypes.durations import print_duration
from caraway.errors import UnknownEntityError
from caraway.graph.trees import following, steps_from
from caraway.observations.figures import cut

# The names of extractors that are generated from the definitions of features begin with this text
# (`caraway.featuresets.generated`).
GENERATED = "_caraway_"
# The most characters of a value in a table.
MAX_VALUE = 60

Json = Mapping[str, Any]


@command
def inspect(
    dataset: Annotated[str, typer.Argument(help="The name of a dataset.", metavar="DATASET")],
    *,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=500, help="The most rows to show.")] = 10,
    fields: Annotated[
        list[str] | None, typer.Option("--field", help="Only this field; give the option again for further ones.")
    ] = None,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show the newest rows of a dataset."""
    params = {"n": str(rows), "fields": ",".join(fields) if fields else None}
    answer = ask("GET", f"/dataset/{quote(dataset, safe='')}/inspect", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    if not answer:
        out.print("The dataset has no rows.")
        return
    table = plain_table(*answer[0])
    for row in answer:
        table.add_row(*(escape(cut("" if value is None else str(value), MAX_VALUE)) for value in row.values()))
    out.print(table)


@command
def lineage(
    name: Annotated[
        str | None, typer.Argument(help="Show only what this entity comes from and goes into.", metavar="NAME")
    ] = None,
    *,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show what is computed from what: sources, datasets, pipelines, sinks, extractors and features.

    With a name, only what that entity is computed from, and what is computed from it.
    """
    answer = ask("GET", "/lineage", server=server)
    if name is not None:
        answer = _around(answer, name)
    if as_json:
        show_json(answer)
        return
    nodes = {node["id"]: f"{node['kind']} {node['name']}" for node in answer["nodes"]}
    table = plain_table("from", "to", "columns")
    for edge in _shown_edges(answer):
        columns = ", ".join(before if before == after else f"{before} → {after}" for before, after in edge["columns"])
        table.add_row(*map(escape, (nodes[edge["from"]], nodes[edge["to"]], columns)))
    out.print(table if table.row_count else "Nothing is computed from anything on this branch.")


@command
def xray(
    datasets: Annotated[
        list[str] | None, typer.Option("--dataset", help="Only this dataset; give the option again for further ones.")
    ] = None,
    *,
    featuresets: Annotated[
        list[str] | None,
        typer.Option("--featureset", help="Only this featureset; give the option again for further ones."),
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="Only this property; give the option again for further ones.")
    ] = None,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show properties of datasets and featuresets: schema, owner, tags, version, rows, backlog, source code."""
    asked = {"datasets": datasets, "featuresets": featuresets, "properties": properties}
    params = {key: ",".join(names) if names else None for key, names in asked.items()}
    answer = ask("GET", "/xray", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    for kind in ("dataset", "featureset"):
        for found in answer[f"{kind}s"]:
            out.print(f"[bold]{kind} {escape(str(found.get('name', '')))}[/bold]")
            for key, value in found.items():
                if key != "name" and value not in ("", [], {}, None):
                    out.print(f"  {key}: {_property(key, value)}", markup=False, soft_wrap=True)


def _shown_edges(answer: Json) -> Iterator[Json]:
    """Yield the edges of a lineage, those through a generated extractor as edges to its feature: nobody wrote it."""
    generated = {
        node["id"]
        for node in answer["nodes"]
        if node["kind"] == "extractor" and node["name"].removeprefix(f"{node['of']}.").startswith(GENERATED)
    }
    for edge in answer["edges"]:
        if edge["from"] in generated:
            for read in answer["edges"]:
                if read["to"] == edge["from"]:
                    yield {**read, "to": edge["to"]}
        elif edge["to"] not in generated:
            yield edge


def _around(answer: Json, name: str) -> dict[str, Any]:
    """Return the part of a lineage that leads to entities with a name, or from them."""
    starts = [node["id"] for node in answer["nodes"] if name in {node["name"], node["id"]}]
    if not starts:
        raise UnknownEntityError(f"the branch has no entity {name!r}; `caraway lineage` lists all")
    pairs = [(edge["from"], edge["to"]) for edge in answer["edges"]]
    below = set(steps_from(starts, following(pairs)))
    above = set(steps_from(starts, following((after, before) for before, after in pairs)))
    # An edge from an entity above the named one to an entity below it leads past the named one, so it isn't part of its
    # lineage.
    edges = [
        edge for edge in answer["edges"] if {edge["from"], edge["to"]} <= above or {edge["from"], edge["to"]} <= below
    ]
    return {"nodes": [node for node in answer["nodes"] if node["id"] in above | below], "edges": edges}


def _property(name: str, value: object) -> str:
    """Return a property as people read it: durations and instants are sent in microseconds."""
    if isinstance(value, int) and name in {"history", "retention"}:
        return print_duration(value)
    if isinstance(value, int) and name.startswith("last_"):
        return datetime.fromtimestamp(value / 1e6, UTC).isoformat()
    return _listed(value)


def _listed(value: object) -> str:
    match value:
        case dict():
            # Most metadata of most fields is empty, and left out.
            shown = ((key, _listed(each)) for key, each in value.items() if each not in ("", [], {}, None, False))
            return ", ".join(f"{key} {text}".rstrip() for key, text in shown)
        case list():
            return ", ".join(map(_listed, value))
        case _:
            return str(value)
