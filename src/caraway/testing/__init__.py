"""Unit tests of definitions: a client without a server, and functions that compare its answers."""

from caraway.testing.client import MockClient
from caraway.testing.comparing import (
    almost_equal,
    erase_extractor_pycode,
    erase_operator_pycode,
    error_message,
    get_extractor_func,
)
from caraway.testing.decorator import log, mock
from caraway.testing.integration import IntegrationClient, InternalTestClient, LocalClient

__all__ = [
    "IntegrationClient",
    "InternalTestClient",
    "LocalClient",
    "MockClient",
    "almost_equal",
    "erase_extractor_pycode",
    "erase_operator_pycode",
    "error_message",
    "get_extractor_func",
    "log",
    "mock",
]
