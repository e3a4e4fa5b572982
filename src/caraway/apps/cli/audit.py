"""`caraway audit`: who changed what, and who was refused what."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from caraway.apps.cli.database import DatabaseOptions, opened
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import JsonOption, show_json
from caraway.state.audit import AuditLog


@command
def audit(
    database: DatabaseOptions,
    limit: Annotated[int, typer.Option(help="How many lines, newest first.", min=1, max=100_000)] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show the newest changes and refusals, with who it was."""
    with opened(database) as engine:
        records = AuditLog(engine).newest(limit)
        if as_json:
            lines = [{"at": r.at, **asdict(r.act), "outcome": r.outcome, "times": r.times} for r in records]
            show_json({"audit": lines})
            return
        table = plain_table("at", "account", "token", "action", "branch", "outcome", "times", "")
        for record in records:
            act = record.act
            cells = [act.account or "anybody", act.token_id, act.action, act.branch, record.outcome, str(record.times)]
            # Details come from requests, also from refused ones, so their markup is escaped.
            table.add_row(f"{record.at:%Y-%m-%d %H:%M:%S}", *map(escape, (*cells, act.detail)))
        out.print(table)
