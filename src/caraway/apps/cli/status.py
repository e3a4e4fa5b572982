"""`caraway status`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from caraway.apps.cli.colours import COLOURS
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table, table_of
from caraway.apps.cli.remote import ServerOptions, ask
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.report import (
    IndexReport,
    PartReport,
    StackReport,
    report_job,
    report_stack,
    with_status,
)
from caraway.client.discovery import RunningStack
from caraway.errors import CarawayError
from caraway.observations.figures import clock, duration, seconds
from caraway.observations.observation import Row, without
from caraway.observations.operating import JOBS_OF_STATUS, SINKS, SOURCES_LISTED
from caraway.process.settings.settings import load_settings

# Seconds for which this command waits at most until the server reports on its sources and indexes. The time is short
# because operators ask for the status when something hangs, which may be the server.
SERVER_TIMEOUT_SECONDS = 3.0


@command
def status(
    server: ServerOptions,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")] = False,
) -> None:
    """Show each part of the stack, and what is wrong on the branch main; exit code 0 only if all parts run.

    With --url what that server knows; without, the stack in the data folder, whose processes are shown, too.
    """
    if server.names_a_server:
        report = _remote(server)
    else:
        report = report_stack(DataFolder(load_settings(server.data).data_dir))
        if report.url and _serves(report):
            local = ServerOptions(url=report.url, token=RunningStack(report.url, Path(report.data_dir)).token())
            # If the server doesn't answer, its part of the report is left out. The table of parts shows why.
            with suppress(CarawayError, msgspec.ValidationError, KeyError):
                report = with_status(report, _answer(local, "/status"))
                report = _with_problems(report, local)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        _show(report)
    healthy = report.state == "running" and all(part.state == "running" for part in report.parts)
    raise typer.Exit(0 if healthy else 1)


def _remote(server: ServerOptions) -> StackReport:
    """Return what a server reports on itself. It doesn't know the other processes of its deployment."""
    answer = _answer(server, "/status")
    report = StackReport(
        state="running",
        message="",
        data_dir="",
        url=server.address.url,
        memory_bytes=0,
        parts=(),
        jobs=tuple(report_job(job["id"], job) for job in answer["jobs"] if job["desired"] == "running"),
    )
    return _with_problems(with_status(report, answer), server)


def _with_problems(report: StackReport, server: ServerOptions) -> StackReport:
    return msgspec.structs.replace(report, problems=tuple(_answer(server, "/problems")["problems"]))


def _answer(server: ServerOptions, path: str) -> Any:
    return ask("GET", path, server=server, timeout_seconds=SERVER_TIMEOUT_SECONDS)


def _show(report: StackReport) -> None:
    place = f"in {report.data_dir}" if report.data_dir else f"at {report.url}"
    out.print(f"Caraway {place}: [bold]{report.state}[/]", soft_wrap=True)
    if report.message:
        out.print(report.message, markup=False, soft_wrap=True)
    if report.url and report.data_dir and _serves(report):
        out.print(f"Server: {report.url}, memory of all: {_megabytes(report.memory_bytes)}", soft_wrap=True)
    if report.parts:
        out.print(_part_table(report))
    for part in report.parts:
        if part.message:
            out.print(f"{part.name}: {part.message}", markup=False, soft_wrap=True)
    if report.functions:
        out.print(f"Users' functions: {report.functions}", markup=False, soft_wrap=True)
    if report.jobs:
        out.print(table_of(JOBS_OF_STATUS, _rows(report.jobs)))
    if report.indexes:
        out.print(_index_table(report.indexes))
    if report.sources:
        out.print(table_of(SOURCES_LISTED, _rows(report.sources)))
    for source in report.sources:
        if source.error:
            out.print(f"{source.source}: {source.error}", markup=False, soft_wrap=True)
    if report.sinks:
        out.print(table_of(without(SINKS, "sink", "error"), _rows(report.sinks)))
    for sink in report.sinks:
        if sink.error:
            out.print(f"{sink.sink}: {sink.error}", markup=False, soft_wrap=True)
    _show_problems(report)


def _show_problems(report: StackReport) -> None:
    for problem in report.problems:
        # A problem without a link to a page of the console is a part that doesn't work. The tables above show it, and
        # why it doesn't work.
        if problem["link"]:
            since = f" Since {clock(problem['since'])} UTC." if problem["since"] else ""
            out.print(f"{problem['what']}{since} {problem['remedy']}", markup=False, soft_wrap=True)


def _serves(report: StackReport) -> bool:
    """Return whether the server can be asked, as also while another part is started again."""
    started = any(part.name == "server" and part.state == "running" for part in report.parts)
    return report.state == "running" or (report.state == "starting" and started)


def _rows(reports: Sequence[msgspec.Struct]) -> list[Row]:
    found: list[Row] = msgspec.to_builtins(reports)
    return found


def _part_table(report: StackReport) -> Table:
    table = plain_table("part", "state", "pid", "port", "up", "memory", "restarts")
    for part in report.parts:
        table.add_row(
            part.name,
            Text(_state(part), style=COLOURS.get(part.state, "red")),  # type: ignore[call-overload] # keys are strings
            str(part.pid or ""),
            str(part.port or ""),
            "" if part.uptime_seconds is None else duration(part.uptime_seconds),
            _megabytes(part.memory_bytes),
            str(part.restarts),
        )
    return table


def _index_table(indexes: tuple[IndexReport, ...]) -> Table:
    table = plain_table("index", "records behind", "seconds behind", "age")
    for index in indexes:
        table.add_row(
            index.dataset,
            ("" if index.lag is None else f"{index.lag:,}") + (", is loaded by files" if index.held else ""),
            "" if index.lag_seconds is None else f"{index.lag_seconds:,.1f}",
            "" if index.freshness_seconds is None else seconds(index.freshness_seconds),
        )
    return table


def _state(part: PartReport) -> str:
    return f"{part.state} (external)" if part.external else part.state


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f} MB"
