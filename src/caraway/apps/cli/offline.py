"""`caraway offline`: the offline queries of a branch."""

from datetime import datetime
from typing import Annotated, Any

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json

offline = typer.Typer(help="Offline queries: list them, follow one, cancel one.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(help="The id of the query.", metavar="ID")]


@offline.command("list")
@command
def list_queries(server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show the newest offline queries of a branch."""
    answer = ask("GET", "/query_offline/list", server=server)
    if as_json:
        show_json(answer)
        return
    table = plain_table("query", "status")
    for heading in ("rows", "done", "failed"):
        table.add_column(heading, justify="right")
    table.add_column("asked")
    table.add_column("error", overflow="fold")
    for found in answer["queries"]:
        table.add_row(
            found["request_id"],
            found["status"],
            "" if found["rows"] is None else f"{found['rows']:,}",
            f"{found['rows_done']:,}",
            f"{found['rows_failed']:,}",
            _time(found["asked_at"]),
            found["error"] or "",
        )
    out.print(table if table.row_count else "Nothing was asked yet.")


@offline.command("status")
@command
def status(request_id: IdArgument, server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show the progress of a query, and where its results are."""
    _show(ask("GET", "/query_offline/status", server=server, params={"request_id": request_id}), as_json=as_json)


@offline.command("explain")
@command
def explain(request_id: IdArgument, server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show what a query reads, where it is computed and why, and the seconds of its steps."""
    answer = ask("GET", "/query_offline/explain", server=server, params={"request_id": request_id})
    if as_json:
        show_json(answer)
        return
    out.print(f"computed in: {answer['execution']}, since {answer['reason']}", markup=False, soft_wrap=True)
    out.print(
        f"{answer['records']:,} records need about {answer['memory_mb']:,.1f} MiB, of {answer['limit_mb']:,} that a "
        f"process may have; reading takes about {answer['seconds']:,.1f} s",
        markup=False,
        soft_wrap=True,
    )
    table = plain_table("dataset", "records", "files", "MiB", "in columns", "by an index", "undecided")
    for found in answer["datasets"]:
        fields = (", ".join(found[name]) for name in ("columns", "index", "undecided"))
        size = f"{found['memory_mb']:,.1f}"
        table.add_row(found["dataset"], f"{found['records']:,}", f"{found['archived_files']:,}", size, *fields)
    out.print(table)
    progress = answer["progress"]
    spent = ", ".join(f"{name} {seconds:,.3f} s" for name, seconds in progress["seconds"].items())
    out.print(f"{progress['rows_done']:,} rows, {progress['bytes']:,} bytes; {spent}", markup=False, soft_wrap=True)


@offline.command("cancel")
@command
def cancel(request_id: IdArgument, server: BranchOptions, as_json: JsonOption = False) -> None:
    """End a query behind the part that it computes."""
    server.announce()
    answer = ask("POST", "/query_offline/cancel", server=server, params={"request_id": request_id}, body={})
    _show(answer, as_json=as_json)


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    rows = "an unknown number of" if answer["rows"] is None else f"{answer['rows']:,}"
    out.print(
        f"{answer['status']}: {answer['rows_done']:,} of {rows} rows in {answer['parts']} parts, "
        f"{answer['rows_failed']:,} of them failed",
        markup=False,
    )
    if answer["rows_short"]:
        out.print(f"{answer['rows_short']:,} rows ask for more history than there is: see their column _history")
    out.print(f"results: {answer['output_bucket']}/{answer['output_prefix']}", markup=False, soft_wrap=True)
    if answer["error"]:
        out.print(f"error: {answer['error']}", markup=False, soft_wrap=True)


def _time(found: str) -> str:
    return datetime.fromisoformat(found).astimezone().strftime("%Y-%m-%d %H:%M:%S")
