"""Send one message of a run of the fuzzer again: `python -m tests.fuzz.again SEED NUMBER HOST:PORT TOKEN [SESSION]`.

The number is in what the run says about a fault. With `mcp` as the session, the messages are those to an MCP server.
"""

import sys
from itertools import islice

from tests.fuzz.messages import Caller, messages
from tests.fuzz.sending import Reply, send
from tests.fuzz.valid import agents, pages, requests

MCP = "mcp"


def again(seed: int, number: int, address: str, token: str, session: str) -> Reply:
    """Make the messages of a seed up to one, send that one, and return its reply."""
    valid = agents() if session == MCP else (*requests(), *pages(session))
    made = messages(seed, number + 1, valid, Caller(address, token))
    message = next(islice(made, number, None))
    host, _, port = address.rpartition(":")
    return send(host, int(port), message)


if __name__ == "__main__":
    seed, number, address, token, *session = sys.argv[1:]
    print(again(int(seed), int(number), address, token, *(session or ["none"])))  # noqa: T201 (its result)
