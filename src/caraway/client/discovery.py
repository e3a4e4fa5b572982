"""The search for the server that a program is to use, and for the token to send to it.

This module imports the standard library and Caraway's errors only, so that commands and notebooks start quickly.
"""

import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from caraway.errors import InvalidInputError, UnavailableError

if sys.platform != "win32":
    import fcntl

DEFAULT_PORT: Final = 8100
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
URL_VARIABLE: Final = "CARAWAY_URL"
TOKEN_VARIABLE: Final = "CARAWAY_TOKEN"  # noqa: S105 (its name)
DATA_VARIABLE: Final = "CARAWAY_DATA_DIR"
DEFAULT_DATA_DIR: Final = "caraway-data"

# Files of a data folder.
RECORD: Final = Path("run", "stack.json")
TOKEN: Final = Path("run", "token")
LOCK: Final = Path("run", "lock")

# At most this many bytes are read of a file by which a stack announces itself. The record of a stack takes a few kB and
# a token some 60 bytes, so a larger file isn't one of Caraway's and is treated as missing.
MAX_FILE_BYTES: Final = 1_000_000

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server and the token to send to it.

    Attributes:
        url: The server, such as `http://127.0.0.1:8100`.
        token: The token; empty if none is known.
        data_dir: The data folder of its stack; None if it isn't known to be a stack of this machine.
        elsewhere: True if nothing chose this stack but that it is the only one that runs.
    """

    url: str
    token: str
    data_dir: Path | None = field(default=None, compare=False)
    elsewhere: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack that runs on this machine.

    Attributes:
        url: The URL of its server.
        data_dir: Its data folder.
    """

    url: str
    data_dir: Path

    def token(self) -> str:
        """Return the token of the stack; empty if it has none, or none that this user may read."""
        return (_read(self.data_dir / TOKEN) or b"").decode("ascii", "replace").strip()


def find_server(url: str | None = None, token: str | None = None, data_dir: Path | None = None) -> ServerAddress:
    """Return the server that a program is to use, and the token to send to it.

    The server is, in this order: the argument; the variable CARAWAY_URL; the stack of the data folder (the argument,
    the variable CARAWAY_DATA_DIR, or `./caraway-data`); the only running stack that this user has started with
    `caraway up`; `http://127.0.0.1:8100`.

    The token is the argument, or the variable CARAWAY_TOKEN, or that of the stack. A stack's own token is returned
    with the URL of that stack only. If CARAWAY_URL is set, CARAWAY_TOKEN is returned with that URL only.

    Args:
        url: The server; None: search for it.
        token: The token; None: search for it; an empty one: send none.
        data_dir: The data folder of the stack to use.

    Raises:
        UnavailableError: A data folder is named, and no stack runs in it, or it is of another user; or CARAWAY_TOKEN is
            set, but nothing says for which server.
        InvalidInputError: Several stacks run, and neither argument nor environment chooses one.
    """
    named = os.environ.get(URL_VARIABLE)
    wanted = url or named
    stack = _stack_of(wanted, data_dir) if wanted else _only_stack(data_dir)
    found = stack.url if stack else wanted or DEFAULT_URL
    if token is None and not stack and not wanted and os.environ.get(TOKEN_VARIABLE):
        # Another user of the machine may listen at the default address, and would get the token.
        raise UnavailableError(
            f"{TOKEN_VARIABLE} is set, but no address to send it to, and none of your stacks runs: set {URL_VARIABLE} "
            f"(such as {DEFAULT_URL}) to the server of the token, or start a stack with `caraway up`"
        )
    if token is None and (given := os.environ.get(TOKEN_VARIABLE)) and (not named or _same(named, found)):
        token = given
    if token is None:
        token = stack.token() if stack else ""
    folder = stack.data_dir if stack else None
    return ServerAddress(found, token, folder, not wanted and folder not in {None, _data_folder(data_dir)[0]})


def running_stacks() -> list[RunningStack]:
    """Return the stacks that this user has started and that still run, in any data folder."""
    folder = stacks_folder()
    try:
        entries = sorted(folder.glob("*.json")) if folder is not None else []
    except OSError:
        return []
    stacks = (announced(entry) for entry in entries)
    return [stack for stack in stacks if stack is not None]


def announced(entry: Path) -> RunningStack | None:
    """Return the stack of an entry of `stacks_folder`; None if the stack doesn't run, or the file isn't an entry."""
    if not _is_ours(entry):
        return None
    known = _json(entry)
    url, folder = known.get("url"), known.get("data_dir")
    if not isinstance(url, str) or not isinstance(folder, str) or not is_running(Path(folder)):
        return None
    return RunningStack(url, Path(folder))


def stacks_folder() -> Path | None:
    """Return the folder with one file for each stack of this user; None if the user has no home."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    try:
        # The XDG Base Directory Specification requires that a relative path in this variable is ignored.
        state = Path(chosen) if chosen and Path(chosen).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "caraway" / "stacks"


def entry_name(data_dir: Path) -> str:
    """Return the name of a stack's file in `stacks_folder`."""
    return f"{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:32]}.json"


def is_running(data_dir: Path) -> bool:
    """Return whether a stack holds the lock of a data folder. The system releases the lock however the stack ends."""
    if sys.platform == "win32":
        return False
    try:
        with (data_dir / LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _only_stack(data_dir: Path | None) -> RunningStack | None:
    """Return the stack to use if no URL is given; None if none runs."""
    folder, named = _data_folder(data_dir)
    here = _stack_in(folder, named=named)
    if here is not None:
        return here
    if named:
        raise UnavailableError(
            f"no stack runs in {folder}: start it with `caraway up`, name its folder with --data, or give its URL"
        )
    stacks = running_stacks()
    if len(stacks) > 1:
        listed = "\n".join(f"  {stack.url}  of {stack.data_dir}" for stack in stacks)
        raise InvalidInputError(
            f"{len(stacks)} stacks run on this machine:\n{listed}\n"
            f'Say which one is meant: Client("{stacks[0].url}"), --url {stacks[0].url}, or the variable {URL_VARIABLE}.'
        )
    return stacks[0] if stacks else None


def _stack_of(url: str, data_dir: Path | None) -> RunningStack | None:
    """Return the stack of this user that serves at a URL; None if there is none."""
    folder, named = _data_folder(data_dir)
    here = _stack_in(folder, named=named)
    stacks = [*([here] if here else []), *running_stacks()]
    return next((stack for stack in stacks if _same(stack.url, url)), None)


def _data_folder(data_dir: Path | None) -> tuple[Path, bool]:
    """Return the data folder, and whether an argument or the environment names it."""
    chosen = str(data_dir) if data_dir is not None else os.environ.get(DATA_VARIABLE, "")
    return Path(chosen or DEFAULT_DATA_DIR).expanduser().absolute(), bool(chosen)


def _stack_in(data_dir: Path, *, named: bool) -> RunningStack | None:
    """Return the stack that runs in a folder.

    A folder is accepted only if it belongs to this user or to root: in a place where everybody may write, such as /tmp,
    it could lead to a server of another user.

    Raises `UnavailableError` for a folder of another user that the user has named.
    """
    record = data_dir / RECORD
    if not is_running(data_dir):
        return None
    if not (_is_ours(data_dir) and _is_ours(record)):
        if named:
            raise UnavailableError(
                f"the data folder {data_dir} belongs to another user, who could have your token and rows sent to "
                f"another server: give the URL of the server and a token ({URL_VARIABLE}, {TOKEN_VARIABLE})"
            )
        return None
    known = _json(record)
    url = known.get("urls", {}).get("server") if isinstance(known.get("urls"), dict) else None
    return RunningStack(url, data_dir) if isinstance(url, str) else None


def _same(one: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port; `localhost` equals any loopback address."""
    try:
        (scheme, host, port), (scheme_2, host_2, port_2) = _origin(one), _origin(other)
    except ValueError:
        return False
    local = "localhost" in {host, host_2} and {host, host_2} <= LOOPBACK
    return (scheme, port) == (scheme_2, port_2) and (host == host_2 or local)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)


def _is_ours(file: Path) -> bool:
    if sys.platform == "win32":
        return True
    try:
        return file.stat().st_uid in {os.geteuid(), 0}
    except OSError:
        return False


def _json(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(_read(file) or b"null")
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _read(file: Path) -> bytes | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= MAX_FILE_BYTES else None
