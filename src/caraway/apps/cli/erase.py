"""`caraway erase`: remove all rows of some keys, for the past and to come."""

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from caraway.apps.cli.options import command
from caraway.apps.cli.output import err, out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.apps.cli.rows import InputOption, WithOption, of_options, read_rows
from caraway.errors import InvalidInputError

# The most keys in one request: the server refuses a request with more, so more keys are sent in several requests.
AT_ONCE = 10_000


@command
def erase(
    dataset: Annotated[str, typer.Argument(help="The dataset.", metavar="DATASET")],
    *,
    given: WithOption = None,
    keys: InputOption = None,
    downstream: Annotated[
        bool | None,
        typer.Option(
            "--downstream/--only-here",
            help="Remove the rows from the topic as well, and compute again what depends on them; or don't. "
            "By default only if an erase key is no key of the dataset.",
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Show erased keys, and where they have been removed.")
    ] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Erase keys from a dataset: rows of them are served no more, those that come later included. It can't be undone.

    With --downstream everything that was computed from the rows is computed again without them, and they leave the
    dataset's topic. Otherwise datasets that are computed from this one keep what they have. Clear text of the rows
    stays in some places for a while, and in backups and where the rows came from for ever; the answer lists them.
    """
    path = f"/dataset/{quote(dataset, safe='')}"
    if status:
        _show(ask("GET", f"{path}/erasures", server=server), as_json=as_json)
        return
    rows = [*([of_options(given)] if given else []), *([] if keys is None else read_rows(keys, None))]
    if not rows:
        raise InvalidInputError("give the keys: --with column=value, or --input FILE")
    server.announce()
    answers = []
    for start in range(0, len(rows), AT_ONCE):
        body: dict[str, Any] = {"erase_keys": rows[start : start + AT_ONCE]}
        if downstream is not None:
            body["downstream"] = downstream
        answers.append(ask("POST", f"{path}/erase", server=server, body=body))
    if as_json:
        show_json({"requests": answers})
        return
    err.print(
        f"erased {len(rows)} keys of {dataset}; `caraway erase {dataset} --status` shows where they are removed",
        markup=False,
    )
    _show_remaining(answers[-1])


def _show(answer: Any, *, as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    table = plain_table("asked", "by", "keys by", "hash", "on the topic", "gone from", "waits for")
    for found in answer["erasures"]:
        gone = "\n".join(f"{place['place']}, {place['done_at'][:19]}" for place in found["places"])
        cells = (found["asked_at"][:19], found["account"] or "anybody", ", ".join(found["columns"]), found["digest"])
        waits_for = "\n".join(found["waits_for"])
        table.add_row(
            *map(escape, cells),
            (found["recorded_at"] or "not yet")[:19],
            escape(gone or "nowhere yet"),
            escape(waits_for or "nothing"),
        )
    out.print(table if table.row_count else "Nothing was erased.")
    _show_remaining(answer)


def _show_remaining(answer: dict[str, Any]) -> None:
    """Print the places that keep clear text, if there are any."""
    if not (places := answer["remaining"]):
        return
    table = plain_table("clear text stays in", "which is", "until")
    for place in places:
        table.add_row(*(escape(place[name]) for name in ("where", "what", "until")))
    err.print(table)
