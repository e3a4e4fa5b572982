"""`caraway archive`: the tables of the archive."""

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.observations.observation import rows_of, without
from caraway.observations.operating import ARCHIVE


@command
def archive(server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show the tables of the archive: where they are, how large, and how far behind their topics."""
    answer = ask("GET", "/archive", server=server)
    if as_json:
        show_json(answer)
        return
    found = rows_of(ARCHIVE, answer)
    if not found:
        out.print("Nothing is archived: nothing was committed.")
        return
    out.print(table_of(without(ARCHIVE, "table"), found))
    out.print()
    for table in found:
        if table["url"]:
            # An address has a line of its own, which isn't wrapped, so that it can be copied.
            out.print(f"{table['dataset']} ({table['kind']}): {table['url']}", markup=False, soft_wrap=True)
