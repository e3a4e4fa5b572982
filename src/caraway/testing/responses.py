"""What a mock client answers, in the form of a server's answers."""

import orjson

from caraway.client import Response


def ok() -> Response:
    """Answer that all is well."""
    return Response(200, {}, b"{}")


def failed(status: int, text: str) -> Response:
    """Answer with an error instead of raising it."""
    return Response(status, {}, orjson.dumps({"error": text}))
