"""The shared part of commands that work on Postgres itself; a user who can open it needs no token."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer

from caraway.apps.cli.output import err
from caraway.apps.cli.server_options import DataOption
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import read_record
from caraway.errors import UnavailableError
from caraway.process.settings.settings import load_settings
from caraway.state.access import Access
from caraway.state.database import connect, is_outage
from caraway.state.migrate import is_migrated

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="Postgres; without it that of the settings (CARAWAY_POSTGRES__URL, where other users of this machine "
        "don't see its password), or of the stack in the data folder.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """The options that choose a Postgres."""

    database: DatabaseOption = None
    data: DataOption = None


@contextmanager
def opened(chosen: DatabaseOptions, *, changes: bool = False) -> Iterator[sa.Engine]:
    """Open the Postgres that the options choose: that of the URL, or that of the stack in the data folder.

    For a command that changes something, it prints on the standard error which Postgres that is.

    Raises:
        UnavailableError: No URL is given and no stack runs in the data folder; or Postgres has no tables yet.
    """
    engine = connect(chosen.database or _url(chosen.data))
    try:
        if changes:
            err.print(
                f"→ Postgres at {engine.url.set(drivername='postgresql', password=None)}", markup=False, soft_wrap=True
            )
        _require_tables(engine)
        yield engine
    finally:
        engine.dispose()


def access(engine: sa.Engine) -> Access:
    """Return an object that changes accounts on behalf of the user who runs the command."""
    return Access(engine, by=operator())


def operator() -> str:
    """Return the name of the user who runs the command, for the audit log."""
    return f"operator:{getpass.getuser()}"


def _require_tables(engine: sa.Engine) -> None:
    try:
        ready = is_migrated(engine)
    except sa.exc.DBAPIError as error:
        if not is_outage(error):
            raise
        raise UnavailableError(f"Postgres doesn't answer ({str(error.orig).strip()})") from error
    if not ready:
        raise UnavailableError("the tables are not those of this version; the server brings them there when it starts")


def _url(data: Path | None) -> str:
    settings = load_settings(data)
    if settings.postgres.url is not None:
        return settings.postgres.url
    record = read_record(DataFolder(settings.data_dir).record)
    found = None if record is None else record.urls.get("postgres")
    if found is None:
        raise UnavailableError(
            f"no stack runs in {settings.data_dir}: start it with `caraway up`, name its folder with --data, "
            "or give --database"
        )
    return found
