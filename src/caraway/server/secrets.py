"""Secrets of the platform's own store: kept sealed, opened for who may read them and for users' functions."""

import asyncio
import re
import threading
from collections.abc import Mapping
from datetime import datetime

from caraway.errors import ForbiddenError, InvalidInputError, UnavailableError, UnknownEntityError
from caraway.ingest.table import json_type
from caraway.integrations.keyring import Keyring
from caraway.server.http import Request, Response, json_response
from caraway.state import Mode, SealedSecret, SecretStore
from caraway.state.permissions import Caller

NAME = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
# Beyond so many characters it is no secret, but a file.
MAX_VALUE = 65_536


class SecretBook:
    """All secrets as this process knows them: sealed, in memory, so that no query waits for Postgres. Thread safe."""

    def __init__(self, store: SecretStore, keyring: Keyring) -> None:
        """Read from `store`, and open with `keyring`; nothing is known before `refresh`."""
        self._store = store
        self._keyring = keyring
        self._state: tuple[int, datetime | None] | None = None
        self._known: Mapping[str, SealedSecret] | None = None
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Learn of changes.

        Raises:
            UnavailableError: Postgres doesn't answer; what was known last goes on being used.
        """
        with self._refreshing:
            state = self._store.state()
            if state != self._state:
                self._known = self._store.all()
                self._state = state

    def get(self, name: str) -> str:
        """Return the value of a secret.

        Raises:
            UnknownEntityError: There is none of this name.
            UnavailableError: The secrets haven't been read yet, or this one can't be opened.
        """
        known = self._known
        if known is None:
            raise UnavailableError("the secrets haven't been read yet: Postgres doesn't answer")
        found = known.get(name)
        if found is None:
            raise UnknownEntityError(f"there is no secret {name[:200]!r}; `caraway secrets list` names those that are")
        return self._keyring.open(name, found.key_id, found.sealed)

    def add(self, name: str, value: str, by: str) -> None:
        """Keep a new secret.

        Raises:
            InvalidInputError: The name or the value isn't possible.
            ConflictError: There is one of this name.
            UnavailableError: Postgres doesn't answer.
        """
        self._store.add(checked_name(name), *self._keyring.seal(name, checked_value(value)), by)
        self.refresh()

    def update(self, name: str, value: str, by: str) -> None:
        """Change a secret, or keep a new one.

        Raises:
            InvalidInputError: The name or the value isn't possible.
            UnavailableError: Postgres doesn't answer.
        """
        self._store.update(checked_name(name), *self._keyring.seal(name, checked_value(value)), by)
        self.refresh()

    def delete(self, name: str) -> None:
        """Forget a secret.

        Raises:
            UnknownEntityError: There is none of this name.
            UnavailableError: Postgres doesn't answer.
        """
        self._store.delete(name)
        self.refresh()

    def names(self) -> Mapping[str, SealedSecret]:
        """Return all of them, sealed.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        self.refresh()
        return self._known or {}


def checked_name(name: str) -> str:
    """Return a name that a secret may have.

    Raises:
        InvalidInputError: It isn't possible.
    """
    if not NAME.fullmatch(name):
        raise InvalidInputError("the name of a secret has 1 to 200 letters, digits, _ . and -")
    return name


def checked_value(value: object) -> str:
    """Return a value that a secret may have. No message tells what was given.

    Raises:
        InvalidInputError: It isn't possible.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"value is {json_type(value)}; a string is expected")
    if not value or len(value) > MAX_VALUE:
        raise InvalidInputError(f"value has {len(value):,} characters; 1 to {MAX_VALUE:,} are possible")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("value isn't text: it has half of a surrogate pair") from None
    return value


class SecretRoutes:
    """Answers requests about secrets.

    They have no tags and belong to no branch, as jobs that use them may serve several: whoever is to touch them needs
    the mode on everything.
    """

    def __init__(self, book: SecretBook) -> None:
        """Work on `book`."""
        self._book = book

    async def get(self, request: Request, name: str) -> Response:
        """`GET /secret/{name}`: its value."""
        require_everywhere(request.caller, Mode.READ_DATA)
        await asyncio.to_thread(self._book.refresh)
        return json_response({"value": self._book.get(name)})

    async def add(self, request: Request, name: str) -> Response:
        """`POST /secret/{name}`: keep a new one."""
        require_everywhere(request.caller, Mode.WRITE_DATA)
        await asyncio.to_thread(self._book.add, name, _value(request), request.caller.account)
        return json_response({"name": name})

    async def update(self, request: Request, name: str) -> Response:
        """`PATCH /secret/{name}`: change it, or keep a new one."""
        require_everywhere(request.caller, Mode.WRITE_DATA)
        await asyncio.to_thread(self._book.update, name, _value(request), request.caller.account)
        return json_response({"name": name})

    async def delete(self, request: Request, name: str) -> Response:
        """`DELETE /secret/{name}`: forget it."""
        require_everywhere(request.caller, Mode.WRITE_DATA)
        await asyncio.to_thread(self._book.delete, name)
        return json_response({"name": name})

    async def list(self, request: Request) -> Response:
        """`GET /secrets`: which there are, without their values."""
        del request
        found = await asyncio.to_thread(self._book.names)
        return json_response(
            {
                "secrets": [
                    {"name": s.name, "updated_at": s.updated_at.isoformat(), "updated_by": s.updated_by}
                    for s in found.values()
                ]
            }
        )


def require_everywhere(caller: Caller, mode: Mode) -> None:
    """Check that a caller has a mode on all entities of all branches.

    Raises:
        ForbiddenError: They haven't.
    """
    if not any(mode in grant.modes and grant.of_all and grant.branches is None for grant in caller.grants):
        raise ForbiddenError(
            f"account {caller.account!r} lacks {mode} on all entities of all branches, which secrets need"
        )


def _value(request: Request) -> str:
    body = request.json()
    if not isinstance(body, dict):
        raise InvalidInputError(f"the body is {json_type(body)}; an object with value is expected")
    return checked_value(body.get("value"))
