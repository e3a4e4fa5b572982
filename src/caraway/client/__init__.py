"""The client of a Caraway server."""

from typing import TYPE_CHECKING

from caraway.deferred import deferred

if TYPE_CHECKING:
    from caraway.client.client import Client
    from caraway.client.response import V1_API, Response
else:
    __getattr__, __dir__ = deferred(
        "caraway.client",
        {
            "Client": "caraway.client.client:Client",
            "Response": "caraway.client.response:Response",
            "V1_API": "caraway.client.response:V1_API",
        },
    )

__all__ = ["V1_API", "Client", "Response"]
