"""Who answers lookups and secrets outside of extractors: the newest mock client, as long as it lives."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from caraway.graph.runtime import lookup_provider, secret_provider

if TYPE_CHECKING:
    from caraway.testing.client import MockClient


class NewestClient:
    """Holds a client weakly: a test that is over leaves nothing behind."""

    def __init__(self, client: "MockClient") -> None:
        self._client = weakref.ref(client)

    def get(self) -> "MockClient":
        """Return the client.

        Raises:
            NotImplementedError: It is gone.
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
        """Answer `Dataset.lookup` from the client's current branch."""
        return self.get().lookups(past=False)(dataset, ts, keys, fields)

    def secret(self, name: str) -> str:
        """Answer `secrets.get`."""
        return self.get().get_secret(name)


_newest: list[NewestClient] = []


def announce(client: "MockClient") -> None:
    """Make a client the one that answers from now on."""
    newest = NewestClient(client)
    _newest[:] = [newest]
    lookup_provider.set(newest.lookup)
    secret_provider.set(newest.secret)


def newest_client() -> "MockClient | None":
    """Return the client that was made last, if it lives."""
    try:
        return _newest[0].get() if _newest else None
    except NotImplementedError:
        return None


@contextmanager
def secrets_of(get: Callable[[str], str]) -> Iterator[None]:
    """Let user code that runs meanwhile see the secrets of a client."""
    token = secret_provider.set(get)
    try:
        yield
    finally:
        secret_provider.reset(token)


@contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Put back afterwards who answered before."""
    before = list(_newest)
    lookup, secret = lookup_provider.get(), secret_provider.get()
    try:
        yield
    finally:
        _newest[:] = before
        lookup_provider.set(lookup)
        secret_provider.set(secret)
