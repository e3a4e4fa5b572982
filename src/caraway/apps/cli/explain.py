"""`caraway explain`."""

from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from caraway.apps.cli.definitions import find_definitions
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.remote import JsonOption
from caraway.apps.cli.server_options import DataOption
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import read_record
from caraway.client import Client
from caraway.errors import CarawayError, UnavailableError
from caraway.graph.plan.explain import IndexExplained, JobExplained, PlanExplained, StepExplained, TopicExplained
from caraway.graph.plan.explain import explain as explain_plan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.validation.graphs import validate
from caraway.graph.wire.graphs import decode_graph
from caraway.process.settings.settings import Settings, load_settings
from caraway.state.database import connect
from caraway.state.model import MAIN
from caraway.state.reader import StateReader

# The options of commands that read definitions from a module or, without one, from a branch of the running stack.
ModuleArgument = Annotated[
    str, typer.Argument(help="Definitions, a file or a module; without it, what the branch holds.")
]
StackBranchOption = Annotated[str, typer.Option(help="The branch of the running stack.")]
EnvOption = Annotated[str, typer.Option(help="Take only definitions for this environment.")]


@command
def explain(
    module: ModuleArgument = "",
    branch: StackBranchOption = MAIN,
    env: EnvOption = "",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what runs for definitions: jobs with their modes, steps and state, topics, indexes, what is shared."""
    settings = load_settings(data)
    graph = graph_of(settings, module, branch=branch, env=env)
    explained = explain_plan(
        plan_graph(graph),
        partitions=settings.kafka.partitions,
        processors=settings.spark.processors,
    )
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(explained), indent=2))
    else:
        out.print(picture(explained))


def graph_of(settings: Settings, module: str, *, branch: str, env: str) -> Graph:
    """Return the graph of a module's definitions, or without a module the newest one of a branch.

    Raises `CarawayError` if the definitions are wrong, no stack runs, or nothing was committed to the branch.
    """
    return _defined(module, env) if module else _committed(settings, branch)


def _defined(name: str, env: str) -> Graph:
    """Return the graph of a module's definitions, without a server."""
    found = find_definitions(name)
    request = Client.build_commit("explain", found.datasets, found.featuresets, env=env or None)
    validate(request.graph)
    return request.graph


def _committed(settings: Settings, branch: str) -> Graph:
    """Read the newest graph of a branch."""
    record = read_record(DataFolder(settings.data_dir).record)
    url = settings.postgres.url or (record.urls.get("postgres") if record is not None else None)
    if url is None:
        raise UnavailableError(
            f"no stack runs in {settings.data_dir}: start it with `caraway up`, name its folder with --data, or give "
            "a file with definitions"
        )
    head = StateReader(connect(url)).head(branch)
    if head.commit_id is None:
        raise CarawayError(f"nothing was committed to branch {branch} yet")
    return decode_graph(head.graph)


def picture(plan: PlanExplained) -> RenderableType:
    """Return a drawing of a plan."""
    parts: list[RenderableType] = [_job(job) for job in plan.jobs]
    parts.append(Text(f"all jobs hold {_slots(plan.slots)} of Spark"))
    parts += [_topics(plan.topics), _indexes(plan.indexes)]
    if plan.shared:
        shared = Tree(Text("shared", style="bold"))
        for line in plan.shared:
            shared.add(Text(line))
        parts.append(shared)
    return Group(*parts)


def _job(job: JobExplained) -> Tree:
    tree = Tree(Text.assemble(("job ", "bold"), (job.job_id, "bold"), f"  {job.dataset}.{job.pipeline}"))
    tree.add(Text.assemble((job.mode, "green" if job.mode == "real-time" else "yellow"), f": {job.mode_reason}"))
    corrected = f"what lies back up to {job.horizon}" if _keeps_rows(job.step) else "all results"
    tree.add(Text(f"late records correct {corrected}"))
    tasks = "1 task" if job.tasks == 1 else f"{job.tasks} tasks"
    tree.add(Text(f"{tasks} for each step that keeps rows: {job.tasks_reason}"))
    tree.add(Text(f"holds {_slots(job.slots)} of Spark"))
    for unread in job.unread:
        tree.add(Text(f"doesn't take of {unread.dataset}: {', '.join(unread.columns)}"))
    tree.add(Text(f"writes {job.writes}"))
    _add_step(tree, job.step)
    return tree


def _keeps_rows(step: StepExplained) -> bool:
    """Return whether a step, or one before it, has state, which forgets what lies further back."""
    return bool(step.state) or any(map(_keeps_rows, step.steps))


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"


def _add_step(tree: Tree, step: StepExplained) -> None:
    node = tree.add(Text(step.text))
    if step.state:
        node.add(Text(f"keeps {step.state}", style="cyan"))
    for before in step.steps:
        _add_step(node, before)


def _topics(topics: tuple[TopicExplained, ...]) -> Tree:
    tree = Tree(Text("topics", style="bold"))
    for topic in topics:
        partitions = "1 partition" if topic.partitions == 1 else f"{topic.partitions} partitions"
        node = tree.add(Text(f"{topic.name}: {topic.kind}, {partitions}"))
        key = f"key {', '.join(topic.keys)}; " if topic.keys else ""
        node.add(Text(f"{key}columns {', '.join(topic.columns) or 'none'}"))
        node.add(Text(f"written by {', '.join(topic.writers) or 'nobody'}"))
        node.add(Text(f"read by {', '.join(topic.readers) or 'nobody'}"))
    return tree


def _indexes(indexes: tuple[IndexExplained, ...]) -> Tree:
    tree = Tree(Text("indexes", style="bold"))
    for index in indexes:
        node = tree.add(Text(f"{index.dataset}: {index.kind} by {', '.join(index.keys)}, from {index.topic}"))
        node.add(Text(", ".join(index.values)))
    return tree
