"""The tool that previews a commit of a file on the agent's own machine.

The file is loaded by a process of its own, since it may have changed since the last call, and by the same command that
a person would use. Only an agent that starts this server itself is offered the tool: such an agent can run the file
anyway. Over HTTP it would run a stranger's code.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
from pydantic import Field

from caraway.apps.mcp.asking import Server
from caraway.apps.mcp.sizes import fitting
from caraway.errors import CommitError, InvalidInputError, shortened

# The longest time of a preview, in seconds.
TIMEOUT_S: Final = 300
# The most characters of an error that a preview prints.
MAX_ERROR: Final = 4_000


def preview_tool(server: Server, environment: dict[str, str]) -> Any:
    """Return the tool for a server; `environment` is that of the process, which has the token."""

    def preview_commit(
        file: Annotated[str, Field(description="A Python file with definitions, by its path.")],
        *,
        incremental: Annotated[bool, Field(description="Keep definitions of the branch that the file lacks.")] = False,
        env: Annotated[str, Field(description="Take only definitions for this environment.")] = "",
        branch: Annotated[str, Field(description="The branch; without it, the one of this server.")] = "",
    ) -> dict[str, Any]:
        """Report what a commit of the definitions in a file would change, start and compute. It changes nothing."""
        path = Path(file)
        if path.suffix != ".py" or not path.is_file():
            raise InvalidInputError(f"{file} is no Python file; give the path of one with definitions")
        command = [sys.executable, "-m", "caraway.apps.cli", "preview", str(path.resolve()), "--json"]
        command += ["--url", server.url, "--branch", branch or server.branch]
        command += ["--incremental"] if incremental else []
        command += ["--env", env] if env else []
        try:
            done = subprocess.run(
                command,
                env={**environment, "CARAWAY_TOKEN": server.token or ""},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InvalidInputError(f"{file} took longer than {TIMEOUT_S} s to load and preview") from error
        if done.returncode:
            raise CommitError(shortened(done.stderr.strip() or done.stdout.strip(), MAX_ERROR))
        answer: dict[str, Any] = fitting(orjson.loads(done.stdout), "preview fewer definitions, with incremental")
        return answer

    return preview_commit
