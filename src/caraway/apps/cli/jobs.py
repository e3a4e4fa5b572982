"""`caraway jobs`."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import ServerOptions, ask
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.report import JobProgress, JobReport, report_job, report_stack
from caraway.process.estimates import duration
from caraway.process.settings.settings import load_settings

COLOURS = {"running": "green", "failing": "red"}
# The phases in which a job reads its history.
HISTORY = {"archive", "backfill"}


@command
def jobs(
    server: ServerOptions,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: a JSON list.")] = False,
) -> None:
    """Show the streaming jobs: how far behind, how fast, how much state; exit code 0 only if all of them run.

    With --url those of all engines, as the server knows them; without, those of the engine in the data folder.
    """
    if not server.names_a_server:
        report = report_stack(DataFolder(load_settings(server.data).data_dir))
        found = report.jobs
        place = f"in {report.data_dir}, where the stack is {report.state}; --data or --url names another one"
    else:
        place = f"at {server.address.url}"
        answered = ask("GET", "/status", server=server)["jobs"]
        found = tuple(report_job(job["id"], job) for job in answered if job["desired"] == "running")
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    elif found:
        out.print(job_table(found))
        for job in found:
            if job.error:
                out.print(f"{job.id}: {job.error}", markup=False, soft_wrap=True)
    else:
        out.print(f"There are no jobs {place}.", markup=False, soft_wrap=True)
    raise typer.Exit(0 if all(job.state == "running" for job in found) else 1)


def job_table(found: tuple[JobReport, ...]) -> Table:
    """Return a table of the jobs."""
    table = plain_table("job", "state", "mode", "doing")
    for heading in ("lag", "behind", "rows/s", "state", "checkpoint", "dead letters", "starts"):
        table.add_column(heading, justify="right")
    table.add_column("engine")
    for job in found:
        progress = job.progress
        table.add_row(
            job.id,
            Text(job.state, style=COLOURS.get(job.state, "yellow")),
            job.mode,
            _doing(progress),
            _number(progress.lag_records),
            "" if progress.lag_seconds is None else f"{progress.lag_seconds:.0f} s",
            _number(progress.rows_per_second),
            "" if progress.state_bytes is None else f"{progress.state_bytes / 1e6:.1f} MB",
            "" if progress.checkpoint_ms is None else f"{progress.checkpoint_ms:.0f} ms",
            _number(progress.dead_letters),
            str(job.attempts),
            job.engine,
        )
    return table


def _doing(progress: JobProgress) -> str:
    """Return the phase of a job, with the time that is left if it reads its history."""
    lag, rate = progress.lag_records, progress.rows_per_second
    if progress.phase not in HISTORY or not lag or not rate:
        return progress.phase
    return f"{progress.phase}, {duration(lag / rate)} left"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
