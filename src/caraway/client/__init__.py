"""The client of a Caraway server."""

from typing import TYPE_CHECKING

from caraway.process.deferred import deferred

if TYPE_CHECKING:
    from caraway.client.async_client import AsyncClient
    from caraway.client.client import Client
    from caraway.client.discovery import ServerAddress, find_server
    from caraway.client.response import V1_API, Response
    from caraway.client.results import CommitResult, LogResult
    from caraway.client.training import TrainingSet
    from caraway.client.waiting import WaitResult
else:
    __getattr__, __dir__ = deferred(
        "caraway.client",
        {
            "AsyncClient": "caraway.client.async_client:AsyncClient",
            "Client": "caraway.client.client:Client",
            "CommitResult": "caraway.client.results:CommitResult",
            "LogResult": "caraway.client.results:LogResult",
            "TrainingSet": "caraway.client.training:TrainingSet",
            "WaitResult": "caraway.client.waiting:WaitResult",
            "Response": "caraway.client.response:Response",
            "ServerAddress": "caraway.client.discovery:ServerAddress",
            "V1_API": "caraway.client.response:V1_API",
            "find_server": "caraway.client.discovery:find_server",
        },
    )

__all__ = [
    "V1_API",
    "AsyncClient",
    "Client",
    "CommitResult",
    "LogResult",
    "Response",
    "ServerAddress",
    "TrainingSet",
    "WaitResult",
    "find_server",
]
