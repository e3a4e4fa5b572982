"""Catalogs of Iceberg tables in users' systems, opened by `pyiceberg`, which is an extra."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from caraway.errors import UnavailableError, shortened
from caraway.graph.systems import IcebergSystem, Secretish

# The property with the folders of this machine in which files may be, as JSON.
FOLDERS = "caraway.local-folders"
# The databases that can be catalogs, by SQLAlchemy's names for them.
DATABASES = ("postgresql", "mysql", "mariadb")
# The seconds for which a request to S3 is awaited.
CONNECT_S, REQUEST_S = 10.0, 60.0
# The most characters of a library's error that are shown.
SHOWN = 300

Resolve = Callable[[Secretish], str]


class GuardedFiles(PyArrowFileIO):
    """The files of tables, of which those of this machine must be in certain folders: a table names any file."""

    def new_input(self, location: str) -> Any:
        """Return a file for reading."""
        self._check(location)
        return super().new_input(location)

    def new_output(self, location: str) -> Any:
        """Return a file for writing."""
        self._check(location)
        return super().new_output(location)

    def delete(self, location: "str | InputFile | OutputFile") -> None:
        """Delete a file."""
        self._check(location if isinstance(location, str) else location.location)
        super().delete(location)

    def _check(self, location: str) -> None:
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme == "file":
            check_local(path, json.loads(str(self.properties.get(FOLDERS, "[]"))), location)


def check_local(path: str, folders: Sequence[str], shown: str) -> None:
    """Raise `UnavailableError` unless a file of this machine is in one of some folders, links resolved."""
    found = Path(path).resolve()
    if not any(found.is_relative_to(Path(folder).resolve()) for folder in folders):
        raise UnavailableError(
            f"{shown} isn't in a folder that the server may use; the setting sources.local_folders has those that "
            f"sources may read: {', '.join(folders) or 'none'}"
        )


def open_catalog(
    system: IcebergSystem, resolve: Resolve, *, endpoint: str | None = None, local_folders: Sequence[str] = ()
) -> Catalog:
    """Open a catalog.

    Args:
        system: The catalog.
        resolve: Returns the values of secrets.
        endpoint: The address of the S3 that the files are in, if it isn't AWS's own.
        local_folders: The folders of this machine in which files, and SQLite's databases, may be.

    Raises:
        UnavailableError: The catalog doesn't answer or refuses, or its address can't be.
        UnknownEntityError: A secret doesn't exist.
    """
    uri = resolve(system.uri)
    properties: dict[str, str] = {
        "uri": uri,
        "py-io-impl": f"{GuardedFiles.__module__}.{GuardedFiles.__name__}",
        FOLDERS: json.dumps(list(local_folders)),
        "s3.connect-timeout": str(CONNECT_S),
        "s3.request-timeout": str(REQUEST_S),
        # Nothing is made in the database of a user: whoever has tables there has made it a catalog.
        "init_catalog_tables": "false",
        "pool_pre_ping": "true",
    }
    if system.warehouse is not None:
        properties["warehouse"] = system.warehouse
    secrets = {
        "credential": system.credential,
        "token": system.token,
        "s3.access-key-id": system.access_key_id,
        "s3.secret-access-key": system.secret_access_key,
    }
    properties |= {name: resolve(secret) for name, secret in secrets.items() if secret is not None}
    if endpoint is not None:
        address = endpoint if "://" in endpoint else f"https://{endpoint}"
        # A store of one's own has no regions.
        properties |= {"s3.endpoint": address, "s3.region": "us-east-1"}
    if uri.startswith(("http://", "https://")):
        properties["type"] = "rest"
    else:
        _check_database(system, uri, local_folders)
        properties["type"] = "sql"
    with translated_errors(f"Iceberg {system.name}", system, resolve):
        return load_catalog(system.catalog or system.name, **properties)


def _check_database(system: IcebergSystem, uri: str, local_folders: Sequence[str]) -> None:
    where = f"Iceberg {system.name}"
    try:
        url = make_url(uri)
    except ArgumentError:
        raise UnavailableError(
            f"{where}: uri is http(s)://... for a REST catalog, or the URL of a database, such as "
            "postgresql+psycopg://user:password@host/database"
        ) from None
    kind = url.get_backend_name()
    if kind == "sqlite":
        check_local(url.database or "", local_folders, f"{where}: the database {url.database}")
    elif kind not in DATABASES:
        raise UnavailableError(f"{where}: a catalog is in Postgres or MySQL, not in {kind}")


@contextmanager
def translated_errors(
    where: str, system: IcebergSystem | None = None, resolve: Resolve | None = None
) -> Iterator[None]:
    """Raise all errors of the libraries as `UnavailableError`, without the secrets of the system."""
    try:
        yield
    except UnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 (pyiceberg has no base class for its errors, and lets others' pass)
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if system is not None and resolve is not None:
            for value in _secrets(system, resolve):
                text = text.replace(value, "(secret)")
        raise UnavailableError(f"{where}: {shortened(text, SHOWN)}") from None


def _secrets(system: IcebergSystem, resolve: Resolve) -> Iterator[str]:
    """Yield the texts that no error may have."""
    for secret in (system.uri, system.credential, system.token, system.secret_access_key):
        if secret is None:
            continue
        value = resolve(secret)
        if secret is system.uri:
            if value.startswith("http"):
                continue
            password = make_url(value).password
            if not password:
                continue
            value = str(password)
        yield value


def table_identifier(name: str) -> tuple[str, ...]:
    """Return the parts of a table's name."""
    return tuple(name.split("."))


def properties_of(table: Any) -> Mapping[str, str]:
    """Return the properties of a table."""
    found: Mapping[str, str] = table.metadata.properties
    return found
