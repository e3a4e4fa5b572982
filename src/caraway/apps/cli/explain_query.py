"""`caraway explain query`, and how it shares the word `explain` with `caraway explain FILE`."""

from typing import Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree
from typer.core import TyperGroup
from typing_extensions import override

from caraway.apps.cli.explain import explain
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.apps.cli.rows import InputOption, WithOption, of_options, read_rows


class PlanByDefault(TyperGroup):
    """A group in which `caraway explain FILE` means `caraway explain plan FILE`."""

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # typer's is click's
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["plan", *args]
        return super().parse_args(ctx, args)


explanations = typer.Typer(cls=PlanByDefault, help="Show what runs for definitions (plan), or what a query does.")
explanations.command("plan")(explain)


@explanations.command("query")
@command
def explain_query(
    outputs: Annotated[list[str], typer.Argument(help="Features or featuresets wanted, by full name.")],
    *,
    given: WithOption = None,
    rows: InputOption = None,
    names: Annotated[
        list[str] | None, typer.Option("--supplied", help="A feature that is supplied, if there are no rows.")
    ] = None,
    runs: Annotated[int, typer.Option(help="How often to run it.", min=1)] = 20,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show a query's plan: reads of indexes, expressions, extractors, in order; with rows also how long each takes."""
    body: dict[str, Any] = {"outputs": outputs, "inputs": names or [], "runs": runs}
    data = [of_options(given)] if given else [] if rows is None else list(read_rows(rows, None))
    if data:
        body |= {"data": data, "inputs": list(data[0])}
    answer = ask("POST", "/query/explain", server=server, body=body)
    if as_json:
        show_json(answer)
    else:
        out.print(picture(answer))


def picture(explained: dict[str, Any]) -> Tree:
    """Return a drawing of an explained query."""
    took = explained["took"]
    head = Text.assemble(("query", "bold"), f" of {_columns(explained['outputs'])}")
    if took is not None:
        rows = "1 row" if explained["rows"] == 1 else f"{explained['rows']} rows"
        head.append(f"\n{rows}, {explained['runs']} runs: {_spelled(took)}", "green")
    tree = Tree(head)
    tree.add(Text.assemble(f"given {_columns(explained['inputs'])}", _share(explained["inputs_took"], took)))
    for step in explained["steps"]:
        title = Text.assemble((f"{step['number']} {step['kind']} ", "bold"), step["title"])
        if step["after"]:
            title.append(f", after {', '.join(map(str, step['after']))}", "dim")
        title.append_text(_share(step["took"], took))
        node = tree.add(title)
        for detail in step["details"]:
            node.add(Text(detail))
        if step["kind"] == "extractor":
            node.add(Text(f"{', '.join(step['reads']) or 'nothing'} -> {', '.join(step['adds'])}"))
    if took is not None:
        tree.add(Text.assemble("answer as JSON", _share(explained["answer_took"], took)))
    return tree


def _columns(columns: list[dict[str, str]]) -> str:
    return ", ".join(f"{c['name']}: {c['type']}" if c["type"] else c["name"] for c in columns) or "nothing"


def _spelled(took: dict[str, float]) -> str:
    return f"median {took['median_ms']:.3f} ms, {took['least_ms']:.3f} to {took['most_ms']:.3f} ms"


def _share(took: dict[str, float] | None, whole: dict[str, float] | None) -> Text:
    if took is None or whole is None:
        return Text("")
    share = took["median_ms"] / whole["median_ms"] if whole["median_ms"] else 0.0
    return Text(f"  {took['median_ms']:.3f} ms, {share:.0%}", style="cyan")
