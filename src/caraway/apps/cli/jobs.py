"""`caraway jobs`."""

from typing import Annotated

import msgspec
import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import ServerOptions, ask
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.report import report_job, report_stack
from caraway.observations.observation import without
from caraway.observations.operating import JOBS
from caraway.process.settings.settings import load_settings


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
        found, serving = report.jobs, report.state == "running"
        place = f"in {report.data_dir}, where the stack is {report.state}; --data or --url names another one"
    else:
        place = f"at {server.address.url}"
        answered = ask("GET", "/status", server=server)["jobs"]
        serving = True
        found = tuple(report_job(job["id"], job) for job in answered if job["desired"] == "running")
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    elif found:
        rows = [{**job, "progress": {**job["progress"], "engine": job["engine"]}} for job in msgspec.to_builtins(found)]
        out.print(table_of(without(JOBS, "job", "reported"), rows))
        for job in found:
            if job.error:
                out.print(f"{job.id}: {job.error}", markup=False, soft_wrap=True)
    else:
        out.print(f"There are no jobs {place}.", markup=False, soft_wrap=True)
    raise typer.Exit(0 if serving and all(job.state == "running" for job in found) else 1)
