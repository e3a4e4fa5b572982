"""Secrets as a process uses them: kept sealed in memory, opened when they are used."""

import threading
from collections.abc import Mapping
from datetime import datetime

from caraway.errors import UnknownEntityError
from caraway.integrations.keyring import Keyring, add_key, open_keyring
from caraway.integrations.secret_rules import NAME, checked_name, checked_value
from caraway.state.sealed_secrets import SealedSecret, SealedSecretStore


class SecretStore:
    """All secrets, sealed and in memory, so that no query waits for Postgres. Thread safe."""

    def __init__(self, store: SealedSecretStore, keyring: Keyring) -> None:
        """Read from `store`, and open with `keyring`; `refresh` reads for the first time."""
        self._store = store
        self._keyring = keyring
        self._state: tuple[int, datetime | None] | None = None
        self._known: Mapping[str, SealedSecret] | None = None
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Read the secrets again if they have changed.

        Raises:
            UnavailableError: Postgres doesn't answer; the secrets read last go on being used.
        """
        with self._refreshing:
            state = self._store.state()
            if state != self._state:
                self._known = self._store.all()
                self._state = state

    def get(self, name: str) -> str:
        """Return the value of a secret.

        Raises:
            UnknownEntityError: There is no secret of this name.
            UnavailableError: Postgres has never answered yet, or the secret can't be opened.
        """
        if self._known is None:
            self.refresh()
        found = (self._known or {}).get(name)
        if found is None:
            raise UnknownEntityError(f"there is no secret {name[:200]!r}; `caraway secrets list` names those that are")
        return self._ring(found.key_id).open(name, found.key_id, found.sealed)

    def _ring(self, key_id: str) -> Keyring:
        """Return the keys, read again from their file if the wanted one isn't among them: it may be new."""
        if all(key.id != key_id for key in self._keyring.keys):
            self._keyring = open_keyring(self._keyring.path)
        return self._keyring

    def add(self, name: str, value: str, by: str) -> None:
        """Store a new secret.

        Raises:
            InvalidInputError: The name or the value isn't possible.
            ConflictError: A secret of this name exists.
            UnavailableError: Postgres doesn't answer.
        """
        self._store.add(checked_name(name), *self._keyring.seal(name, checked_value(value)), by)
        self.refresh()

    def update(self, name: str, value: str, by: str) -> None:
        """Store a new value of a secret, which need not exist.

        Raises:
            InvalidInputError: The name or the value isn't possible.
            UnavailableError: Postgres doesn't answer.
        """
        self._store.update(checked_name(name), *self._keyring.seal(name, checked_value(value)), by)
        self.refresh()

    def delete(self, name: str) -> None:
        """Delete a secret.

        Raises:
            UnknownEntityError: There is none of this name.
            UnavailableError: Postgres doesn't answer.
        """
        if not NAME.fullmatch(name):
            # Postgres refuses some texts as names, such as those with a NUL character.
            raise UnknownEntityError(f"there is no secret {name[:200]!r}")
        self._store.delete(name)
        self.refresh()

    def rotate(self) -> int:
        """Create a new key, and seal all secrets anew with it; return how many.

        The old key stays in the file, because the hashes of erased keys were made with it.

        Raises:
            UnavailableError: Postgres doesn't answer; the new key exists, and the next attempt may use it.
        """
        self._keyring = add_key(self._keyring)
        keyring = self._keyring

        def resealed(secret: SealedSecret) -> tuple[str, bytes]:
            return keyring.seal(secret.name, keyring.open(secret.name, secret.key_id, secret.sealed))

        return self._store.reseal(resealed, keyring.current.id)

    def names(self) -> Mapping[str, SealedSecret]:
        """Return all secrets by name, sealed.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        self.refresh()
        return self._known or {}
