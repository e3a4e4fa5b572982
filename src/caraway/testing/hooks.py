"""Lookups and secrets outside of extractors are answered by the newest mock client, as long as it exists."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from caraway.graph.runtime import lookup_provider, secret_provider

if TYPE_CHECKING:
    from caraway.testing.client import MockClient


# A weak reference to the newest client, so that the client isn't kept alive after its test; empty before the first
# client.
_newest: "list[weakref.ref[MockClient]]" = []


def announce(client: "MockClient") -> None:
    """Make a client the one that answers from now on."""
    newest = weakref.ref(client)
    _newest[:] = [newest]

    def lookup(
        dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]
    ) -> "tuple[pd.DataFrame, pd.Series[bool]]":
        return _existing(newest).lookups(past=False)(dataset, ts, keys, fields)

    lookup_provider.set(lookup)
    secret_provider.set(lambda name: _existing(newest).get_secret(name))


def newest_client() -> "MockClient | None":
    """Return the newest client, if it still exists."""
    return _newest[0]() if _newest else None


def _existing(reference: "weakref.ref[MockClient]") -> "MockClient":
    client = reference()
    if client is None:
        raise NotImplementedError(
            "lookups and secrets are answered inside extractors, and in tests as long as there is a MockClient"
        )
    return client


@contextmanager
def secrets_of(get: Callable[[str], str]) -> Iterator[None]:
    """Make user code that runs inside of the block read its secrets by `get`."""
    token = secret_provider.set(get)
    try:
        yield
    finally:
        secret_provider.reset(token)


@contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Restore after the block the client that answered before it."""
    before = list(_newest)
    lookup, secret = lookup_provider.get(), secret_provider.get()
    try:
        yield
    finally:
        _newest[:] = before
        lookup_provider.set(lookup)
        secret_provider.set(secret)
