"""`caraway capacity`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from caraway.apps.cli.explain import EnvOption, ModuleArgument, StackBranchOption, graph_of
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import JsonOption
from caraway.apps.cli.server_options import DataOption
from caraway.errors import InvalidInputError
from caraway.graph.plan.capacity import Capacity, Load
from caraway.graph.plan.capacity import capacity as capacity_of
from caraway.graph.plan.planner import plan_graph
from caraway.observations.figures import size
from caraway.process.settings.settings import load_settings
from caraway.state.model import MAIN

UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The rates and sizes, as the command gets them."""

    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="DATASET=N", help="Events a second of a dataset, such as Orders=20k; once for each."),
    ] = None
    keys: Annotated[
        list[str] | None, typer.Option(metavar="DATASET=N", help="Keys of a dataset, such as Spending=5m.")
    ] = None
    days: Annotated[float, typer.Option(min=0, help="For how many days rows are kept.")] = 30.0
    batch: Annotated[int, typer.Option(min=1, help="Rows of a log request.")] = 100
    queries: Annotated[str, typer.Option(metavar="N", help="Queries a second, such as 2k.")] = "0"
    query_rows: Annotated[int, typer.Option(min=1, help="Rows of a query.")] = 1
    hottest: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the most frequent key in the events, from 0 to 1.")
    ] = 0.0


@command
def capacity(
    asked: Asked,
    module: ModuleArgument = "",
    *,
    branch: StackBranchOption = MAIN,
    env: EnvOption = "",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the cores, disks and shards that definitions need at some rates (docs/operate/scaling.md)."""
    load = Load(
        rates=_numbers("--rate", asked.rate or ()),
        keys=_numbers("--keys", asked.keys or ()),
        days=asked.days,
        batch=asked.batch,
        queries=_number("--queries", asked.queries, asked.queries, "2k"),
        query_rows=asked.query_rows,
        hottest=asked.hottest,
    )
    found = capacity_of(plan_graph(graph_of(load_settings(data), module, branch=branch, env=env)), load)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        out.print(picture(found))


def _numbers(option: str, given: Sequence[str]) -> dict[str, float]:
    """Return the numbers of datasets."""
    parts = [text.partition("=") for text in given]
    return {
        name: _number(option, number if name else "", name + sep + number, "Orders=20k") for name, sep, number in parts
    }


def _number(option: str, digits: str, given: str, example: str) -> float:
    """Return a number, which may end in k, m or g."""
    unit = digits[-1:].lower() if digits[-1:].lower() in UNITS else ""
    try:
        value = float(digits[: len(digits) - len(unit)]) * UNITS[unit]
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InvalidInputError(f"{option} {given} isn't understood; an example is {option} {example}")
    return value


def picture(found: Capacity) -> RenderableType:
    """Return what a plan needs as tables."""
    parts = plain_table("part", "records/s", "cores", "disk", "")
    for part in found.parts:
        parts.add_row(part.name, f"{part.rate:,.0f}", f"{part.cores:,.2f}", size(part.bytes or None), part.note)
    parts.add_row("all", "", f"{found.cores:,.2f}", size(found.bytes or None), "", style="bold")
    shards = plain_table("shards", "busiest index thread", "takes at most")
    for one in found.shards:
        times = "any rate" if math.isinf(one.times) else f"{one.times:,.2f} x these rates"
        shards.add_row(str(one.shards), f"{one.busiest:,.2f} cores", times + (", hardly more" if one.bends else ""))
    return Group(parts, Text(), shards, Text(), Text(_advice(found)))


def _advice(found: Capacity) -> str:
    if found.needed_shards is None:
        return "No number of shards suffices: the most frequent key alone keeps a thread busy. Aggregate it in parts."
    if found.needed_shards == 1:
        return "One index suffices: index.shards needn't be set."
    return (
        f"index.shards = {found.needed_shards}, on as many servers, and kafka.partitions a multiple of it, keep each "
        "index thread below 70% of a core."
    )
