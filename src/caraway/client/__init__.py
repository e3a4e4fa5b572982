"""The client of a Caraway server."""

from caraway.client.client import Client
from caraway.client.response import V1_API, Response

__all__ = ["V1_API", "Client", "Response"]
