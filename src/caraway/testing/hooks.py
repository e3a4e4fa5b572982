"""Lookups and secrets outside of extractors are answered by the newest mock client, as long as it exists."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from caraway.graph.runtime import lookup_provider, secret_provider

if TYPE_CHECKING:
    from caraway.testing.client import MockClient


class NewestClient:
    """Holds a client weakly, so that a client isn't kept after its test."""

    def __init__(self, client: "MockClient") -> None:
        self._client = weakref.ref(client)

    def get(self) -> "MockClient":
        """Return the client.

        Raises:
            NotImplementedError: The client doesn't exist any more.
        """
        client = self._client()
        if client is None:
            raise NotImplementedError(
                "lookups and secrets are answered inside extractors, and in tests as long as there is a MockClient"
            )
        return client

    def lookup(
        self, dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]
    ) -> "tuple[pd.DataFrame, pd.Series[bool]]":
        """Return the answer of `Dataset.lookup` from the client's current branch."""
        return self.get().lookups(past=False)(dataset, ts, keys, fields)

    def secret(self, name: str) -> str:
        """Return the answer of `secrets.get` from the client."""
        return self.get().get_secret(name)


_newest: list[NewestClient] = []


def announce(client: "MockClient") -> None:
    """Make a client the one that answers from now on."""
    newest = NewestClient(client)
    _newest[:] = [newest]
    lookup_provider.set(newest.lookup)
    secret_provider.set(newest.secret)


def newest_client() -> "MockClient | None":
    """Return the newest client, if it still exists."""
    try:
        return _newest[0].get() if _newest else None
    except NotImplementedError:
        return None


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
