"""`caraway wait`: return when all rows that were accepted before are served."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from caraway.apps.cli.connection import send
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.remote import OK, BranchOptions, JsonOption, show_json
from caraway.client.progress import progress_for
from caraway.client.response import BRANCH_HEADER, Response, refusal
from caraway.client.waiting import wait_until_served


@command
def wait(
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most; then exit code 1.", min=0)] = 60.0,
    commit: Annotated[bool, typer.Option("--commit", help="Wait for the branch's newest commit, too.")] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Wait until all rows that were accepted before are served; exit code 1 and a list of what lags if they aren't."""

    # The second argument is the time for which a client repeats a request that the server doesn't answer. This command
    # doesn't repeat requests: it ends with an error if the server is unreachable.
    def ask(body: Mapping[str, Any], _left: float) -> Response:
        response = send("POST", "/wait", server.address, headers={BRANCH_HEADER: server.branch}, body=body)
        if response.status_code != OK:
            raise refusal(response, "POST /wait")
        return response

    progress = progress_for("wait", wanted=False if as_json else None)
    result = wait_until_served(ask, timeout=timeout, commit=commit, progress=progress)
    if as_json:
        show_json({"seconds": result.seconds, "since": result.since})
        return
    out.print(f"served after {result.seconds:.1f} s")
