"""`caraway freshness`: how old what queries read is, dataset by dataset."""

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.observations.monitoring import FRESHNESS
from caraway.observations.observation import rows_of


@command
def freshness(*, server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show how old what queries read is, for each dataset, and where the rows are that it lacks.

    Heartbeats measure this through each pipeline, also when no rows come.
    """
    answer = ask("GET", "/freshness", server=server)
    if as_json:
        show_json(answer)
        return
    found = rows_of(FRESHNESS, answer)
    out.print(
        table_of(FRESHNESS, found) if found else "No dataset of this branch has an index that this server measures.",
        soft_wrap=not found,
    )
