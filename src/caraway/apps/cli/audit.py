"""`caraway audit`: who changed what, and who was refused what."""

from dataclasses import asdict
from typing import Annotated

import typer

from caraway.apps.cli.database import DatabaseOptions, opened
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import JsonOption, show_json
from caraway.observations.operating import AUDIT
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
        lines = [{"at": r.at, **asdict(r.act), "outcome": r.outcome, "times": r.times} for r in records]
        if as_json:
            show_json({"audit": lines})
            return
        rows = [{**line, "number": r.number, "token": r.act.token_id} for line, r in zip(lines, records, strict=True)]
        out.print(table_of(AUDIT, rows))
