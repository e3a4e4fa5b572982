"""`caraway dead-letters`: rows that an endpoint refused or at which a pipeline failed."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from caraway.apps.cli.options import command
from caraway.apps.cli.output import err, out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ServerOptions, ask, show_json
from caraway.apps.cli.rows import parse_json
from caraway.errors import InvalidInputError, RemoteError

dead_letters = typer.Typer(
    help="Rows that an endpoint refused, and rows at which a step of a pipeline failed.", no_args_is_help=True
)

# The number of single dead letters that are shown by default, and the number after which no more are read to group them
# or to replay them by reason.
SHOWN, MAX_READ = 50, 10_000
# Quoted texts and numbers. Reasons that differ only in these are grouped as one mistake.
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,:-]*")

IdArgument = Annotated[str, typer.Argument(help="Its id, as `caraway dead-letters list` shows it.", metavar="ID")]


@dead_letters.command("list")
@command
def list_letters(
    *,
    dataset: Annotated[str | None, typer.Option(help="Only those of this dataset.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Only those of this webhook or other system, or of one source as listed.")
    ] = None,
    since: Annotated[datetime | None, typer.Option(help="Only those that were written at this time or later.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, max=500, help="List this number of single ones.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="List older single ones: the value at the end of an earlier list.")
    ] = None,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show how many dead letters have the same reason; with --limit, --before or --json each of the newest 50."""
    params = {"dataset": dataset, "source": source}
    if since is not None:
        params["since"] = (since if since.tzinfo else since.replace(tzinfo=UTC)).isoformat()
    if limit is None and before is None and not as_json:
        _show_groups(_newest(server, params))
        return
    params |= {"limit": str(limit or SHOWN), "before": before}
    answer = ask("GET", "/dead_letters", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    table = plain_table("id", "at", "dataset", "from", "replayed", "reason")
    for found in answer["dead_letters"]:
        again = (found["replayed_at"] or ("" if found["replayable"] else "can't be"))[:19]
        cells = (found["id"], found["at"][:19], found["dataset"], found["from"], again, found["reason"])
        table.add_row(*map(escape, cells))
    out.print(table if table.row_count else "There are no dead letters.")
    if answer["next"] is not None:
        err.print(f"older ones: --before {answer['next']}", markup=False)


def _newest(server: ServerOptions, params: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    """Yield dead letters, newest first, page by page."""
    before: str | None = None
    read = 0
    while read < MAX_READ:
        answer = ask("GET", "/dead_letters", server=server, params={**params, "limit": "500", "before": before})
        yield from answer["dead_letters"]
        read += len(answer["dead_letters"])
        before = answer["next"]
        if before is None:
            return
    err.print(f"older ones than the newest {read:,} are left out; --dataset, --source and --since narrow the list")


def _show_groups(found: Iterable[dict[str, Any]]) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for letter in found:
        groups[letter["dataset"], *(_VALUES.sub("…", letter[part]) for part in ("from", "reason"))].append(letter)
    table = plain_table("count", "waiting", "newest", "at", "dataset", "from", "reason")
    for letters in sorted(groups.values(), key=len, reverse=True):
        newest = letters[0]
        waiting = sum(letter["replayed_at"] is None for letter in letters)
        cells = (newest["id"], newest["at"][:19], newest["dataset"], newest["from"], newest["reason"])
        table.add_row(f"{len(letters):,}", f"{waiting:,}", *map(escape, cells))
    out.print(table if table.row_count else "There are no dead letters.")


@dead_letters.command("show")
@command
def show(
    letter: IdArgument,
    *,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show a dead letter: its origin, the reason, and its row."""
    path = f"/dead_letters/{quote(letter, safe='')}"
    answer = ask("GET", path, server=server)
    if as_json:
        show_json(answer)
        return
    reasons = answer.pop("reason", None) or []
    for name, value in answer.items():
        if name != "row" and value is not None:
            out.print(f"{name}: {value}", markup=False, soft_wrap=True)
    for reason in reasons:
        field = f"{reason['field']} " if reason.get("field") else ""
        out.print(f"reason: {field}{reason.get('message', '')}", markup=False, soft_wrap=True)
        if reason.get("traceback"):
            out.print(reason["traceback"].rstrip("\n"), markup=False, soft_wrap=True)
    out.print("row:")
    show_json(answer.get("row"))


@dead_letters.command("replay")
@command
def replay(
    letters: Annotated[
        list[str] | None, typer.Argument(help="Ids, as `caraway dead-letters list` shows them.", metavar="ID")
    ] = None,
    *,
    reason: Annotated[
        str | None, typer.Option(help="In place of ids: all whose reason has this text and that wait to be replayed.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="With --reason, only those of this dataset.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMN=VALUE",
            help="Repair a column of the row first: JSON, or else text. Without =VALUE the column is removed.",
        ),
    ] = None,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Send the rows of dead letters again to the datasets that refused them, once: as they are, or repaired.

    A change that a sink's system refused is sent again to it, if no later change of its row counts.

    As they are, they fit after the dataset was changed. A replay that would be refused again changes nothing. By
    --reason, those that can't be replayed are counted by what is wrong with them, and all others are replayed.
    """
    if bool(letters) == bool(reason):
        raise InvalidInputError("give either ids or --reason TEXT")
    server.announce()
    if reason:
        _replay_all(server, reason, dataset, changes, as_json=as_json)
        return
    answers = []
    for letter in letters or ():
        answers.append(_replay(server, letter, changes))
        if not as_json:
            done = answers[-1].get("outcome") or ("was replayed before" if answers[-1]["already"] else "replayed")
            out.print(f"{letter}: {done}, dataset {answers[-1]['dataset']}", markup=False)
    if as_json:
        show_json({"replays": answers})


def _replay_all(
    server: ServerOptions, reason: str, dataset: str | None, changes: list[str] | None, *, as_json: bool
) -> None:
    """Replay the dead letters whose reason has a text; exit code 1 if one can't be replayed, or there is none."""
    # All are listed before the first replay, since a replay changes which dead letters are waiting.
    found = [
        letter["id"]
        for letter in _newest(server, {"dataset": dataset})
        if reason in letter["reason"] and letter["replayed_at"] is None
    ]
    answers: list[Any] = []
    faults: Counter[str] = Counter()
    for letter in found:
        try:
            answers.append(_replay(server, letter, changes))
        except (InvalidInputError, RemoteError) as error:
            faults[str(error).replace(letter, "…")] += 1
    if as_json:
        show_json({"replays": answers, "faults": faults})
    else:
        out.print(f"{len(answers):,} of {len(found):,} dead letters with this reason are replayed")
        for fault, count in faults.most_common():
            err.print(f"{count:,} not: {fault}", markup=False, soft_wrap=True)
    raise typer.Exit(0 if answers and not faults else 1)


def _replay(server: ServerOptions, letter: str, changes: list[str] | None) -> Any:
    path = f"/dead_letters/{quote(letter, safe='')}"
    body = {"row": _repaired(ask("GET", path, server=server).get("row"), changes)} if changes else {}
    return ask("POST", f"{path}/replay", server=server, body=body)


def _repaired(row: object, changes: Iterable[str]) -> dict[str, object]:
    """Return a row with changed columns."""
    if not isinstance(row, dict):
        raise InvalidInputError(
            "the dead letter has only the head of its row, or a row that is no object, so no column can be set; "
            'send the whole row: POST /api/v1/dead_letters/ID/replay with {"row": {...}}'
        )
    repaired = dict(row)
    for change in changes:
        name, separator, text = change.partition("=")
        if not separator:
            repaired.pop(name, None)
            continue
        try:
            repaired[name] = parse_json(text)
        except ValueError:
            repaired[name] = text
    return repaired
