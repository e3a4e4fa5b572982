"""`caraway log`: send events to an endpoint of a webhook."""

import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from caraway.apps.cli.options import command
from caraway.apps.cli.output import err, out
from caraway.apps.cli.remote import BranchOptions, JsonOption, ServerOptions, ask, show_json
from caraway.apps.cli.rows import Format, batches, read_rows
from caraway.client.response import TOO_MANY
from caraway.errors import RemoteError
from caraway.process.estimates import counted

# The number of errors that are shown; `caraway dead-letters list` shows all of them.
MAX_SHOWN = 20
# The most seconds for which rows are sent again while the server answers that it is behind or busy (429).
LONGEST_WAIT_SECONDS = 300.0


@dataclass(slots=True)
class _Sums:
    """The counts over all rows; `errors` are the first ones, with the number of the row in the whole input."""

    accepted: int = 0
    rejected: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)

    def add(self, answer: dict[str, Any], before: int) -> None:
        """Count the answer to a batch that has `before` rows before it."""
        self.accepted += answer["accepted"]
        self.rejected += answer["rejected"]
        room = MAX_SHOWN - len(self.errors)
        self.errors += [{**error, "row": error["row"] + before} for error in answer["errors"][:room]]
        self.warnings.update(dict.fromkeys(answer["warnings"]))


@command
def log(
    webhook: Annotated[str, typer.Argument(help="The webhook.", metavar="WEBHOOK")],
    endpoint: Annotated[str, typer.Argument(help="The endpoint.", metavar="ENDPOINT")],
    rows: Annotated[
        str, typer.Argument(help="A file, - for the standard input, or JSON itself.", metavar="ROWS")
    ] = "-",
    *,
    form: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="The format of ROWS; without it by the name, JSON lines for -."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows in one request.", min=1, max=100_000)] = 1_000,
    as_json: JsonOption = False,
    server: BranchOptions,
) -> None:
    """Send rows to a webhook's endpoint; they are durable when the command ends. Exit code 1 if a row is refused."""
    server.announce()
    sums = _Sums()
    with _progress() as progress:
        task = progress.add_task("", total=None)
        for found in batches(read_rows(rows, form), batch):
            body = {"webhook": webhook, "endpoint": endpoint, "data": found}
            answer = _send(body, server)
            sums.add(answer, sums.accepted + sums.rejected)
            progress.update(task, description=counted(sums.accepted + sums.rejected, "row"))
    _show(sums, as_json=as_json)
    raise typer.Exit(1 if sums.rejected else 0)


def _send(body: Mapping[str, object], server: ServerOptions) -> Any:
    """Send rows, again after the time that the server asks for while it is behind or busy; return its answer.

    Raises `RemoteError` if the server refuses the rows, or still asks for time after `LONGEST_WAIT_SECONDS`.
    """
    # The server logs the rows of several requests with the same key only once. So if a proxy repeats this request after
    # a lost answer, its rows aren't logged twice.
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    started = time.monotonic()
    while True:
        try:
            return ask("POST", "/log", server=server, body=body, headers=headers, accepted=(422,))
        except RemoteError as error:
            pause = error.retry_after_s
            late = pause is None or time.monotonic() - started + pause > LONGEST_WAIT_SECONDS
            if error.status != TOO_MANY or pause is None or late:
                raise
            time.sleep(pause)


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _show(sums: _Sums, *, as_json: bool) -> None:
    if as_json:
        show_json({**asdict(sums), "warnings": list(sums.warnings)})
        return
    for warning in sums.warnings:
        err.print(f"Warning: {warning}", markup=False, soft_wrap=True)
    for error in sums.errors:
        at = f", field {error['field']}" if error["field"] else ""
        err.print(f"row {error['row']}{at} ({error['dataset']}): {error['message']}", markup=False, soft_wrap=True)
    rejected = f", {sums.rejected:,} rejected: `caraway dead-letters list` shows them" if sums.rejected else ""
    out.print(f"{counted(sums.accepted, 'row')} accepted{rejected}", markup=False)
