"""`caraway archive`: the tables of the archive."""

from datetime import datetime

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table, print_bytes
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json


@command
def archive(server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show the tables of the archive: where they are, how large, and how far behind their topics."""
    answer = ask("GET", "/archive", server=server)
    if as_json:
        show_json(answer)
        return
    table = plain_table("dataset", "kind")
    for heading in ("records", "rows", "files", "size", "behind (messages)"):
        table.add_column(heading, justify="right")
    table.add_column("last write")
    table.add_column("table", overflow="fold")
    for found in answer["tables"]:
        table.add_row(
            found["dataset"],
            found["kind"],
            _number(found["records"]),
            _number(found["rows"]),
            _number(found["files"]),
            print_bytes(found["bytes"]),
            _number(found["messages"]),
            _time(found["written_at"]),
            found["url"] or "not written yet",
        )
    out.print(table if table.row_count else "Nothing is archived: nothing was committed.")


def _number(found: int | None) -> str:
    return "" if found is None else f"{found:,}"


def _time(found: str | None) -> str:
    return "" if found is None else datetime.fromisoformat(found).astimezone().strftime("%Y-%m-%d %H:%M:%S")
