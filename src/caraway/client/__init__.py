"""The client: commits definitions, logs rows, queries features."""

from caraway.client.client import Client
from caraway.client.response import Response
from caraway.client.transport import V1_API

__all__ = ["V1_API", "Client", "Response"]
