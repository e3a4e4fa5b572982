"""A schema registry, and decoders that read from it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from caraway.dataplane.sources.decoding.decoder import Decoder
from caraway.dataplane.sources.decoding.formats import decoder_of
from caraway.dataplane.sources.decoding.registry import Resolve
from caraway.graph.systems import SchemaRegistry
from tests.registry_server import RegistryServer, registry_server


@pytest.fixture(scope="session")
def shared_registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture
def decoders() -> Iterator[Callable[..., Decoder]]:
    """Return `decoder_of`; the decoders are closed at the end."""
    with ExitStack() as stack:

        def make(format: str | SchemaRegistry | None, resolve: Resolve = str) -> Decoder:  # noqa: A002
            return stack.enter_context(closing(decoder_of(format, resolve)))

        yield make
