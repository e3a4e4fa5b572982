"""The sign-ins of the user at identity providers, in a private file of the user's configuration folder."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from caraway.errors import UnavailableError
from caraway.process.private_files import make_folder, opener, write_whole

if os.name == "posix":
    import fcntl

FILE, LOCK = "logins.json", "logins.lock"
# A token is renewed from this many seconds before its end on, so that it doesn't end during a request.
EARLY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A sign-in for one server.

    Attributes:
        issuer: The provider.
        client_id: The name of the command line at the provider.
        token_endpoint: The address at which the provider gives tokens.
        revocation_endpoint: The address at which it ends them; empty if it has none.
        access_token: The token for the server.
        refresh_token: The token for the provider that gives the next one; empty if there is none.
        expires_at: When the token for the server ends, in seconds since the epoch.
    """

    issuer: str
    client_id: str
    token_endpoint: str
    revocation_endpoint: str
    access_token: str
    refresh_token: str
    expires_at: float


# A function that returns a sign-in with a new token for the server, or raises `UnauthenticatedError` if the provider
# refuses.
Renew = Callable[[Login], Login]


class Logins:
    """Reads and writes the file. All methods raise `UnavailableError` if it can't be used."""

    def __init__(self, folder: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Use the file in a folder, by default the user's own; `clock` returns seconds since the epoch."""
        self._folder = folder or config_folder()
        self._clock = clock

    def of(self, url: str) -> Login | None:
        """Return the sign-in for a server; None if there is none."""
        return self._read().get(origin(url))

    def token(self, url: str, renew: Renew) -> str:
        """Return a token for a server, renewed if it is about to end; "" if nobody has signed in.

        Raises what `renew` does.
        """
        found = self.of(url)
        if found is None or not found.refresh_token or found.expires_at > self._clock() + EARLY_S:
            return "" if found is None else found.access_token
        # Only one command at a time renews the token, since a provider may accept each refresh token only once.
        with self._locked():
            found = self.of(url)
            if found is not None and found.expires_at <= self._clock() + EARLY_S:
                found = renew(found)
                self._write({**self._read(), origin(url): found})
        return "" if found is None else found.access_token

    def keep(self, url: str, login: Login) -> None:
        """Keep a sign-in for a server in place of an earlier one."""
        with self._locked():
            self._write({**self._read(), origin(url): login})

    def forget(self, url: str) -> Login | None:
        """Remove the sign-in for a server, and return it."""
        with self._locked():
            known = self._read()
            gone = known.pop(origin(url), None)
            if gone is not None:
                self._write(known)
        return gone

    def _read(self) -> dict[str, Login]:
        try:
            known: Mapping[str, Any] = json.loads((self._folder / FILE).read_bytes())
            return {server: Login(**fields) for server, fields in known.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UnavailableError(f"{self._folder / FILE} can't be read ({error}); `caraway login` anew") from error

    def _write(self, logins: Mapping[str, Login]) -> None:
        content = {server: asdict(login) for server, login in logins.items()}
        try:
            write_whole(self._folder / FILE, json.dumps(content, indent=2).encode(), lasting=True)
        except OSError as error:
            raise UnavailableError(f"{self._folder / FILE} can't be written: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other commands from changing the file."""
        try:
            make_folder(self._folder)
            with open(self._folder / LOCK, "wb", opener=opener) as lock:
                if os.name == "posix":
                    fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise UnavailableError(f"{self._folder} can't be used: {error}") from error


def config_folder() -> Path:
    """Return the folder of the user's configuration. Raises `UnavailableError` if the user has no home."""
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        # The XDG Base Directory Specification requires that a relative path in this variable is ignored.
        config = Path(chosen) if chosen and Path(chosen).is_absolute() else Path.home() / ".config"
    except RuntimeError as error:
        raise UnavailableError("the user has no home folder, in which sign-ins are kept") from error
    return config / "caraway"


def origin(url: str) -> str:
    """Return the scheme, host and port of a server: its token is sent to no other."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
