"""Catalogs of Iceberg tables in users' systems, opened by `pyiceberg`, which is an extra."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from caraway.dataplane.addresses.limits import is_below, withheld
from caraway.dataplane.addresses.names import checked_host
from caraway.dataplane.addresses.reach import current, pinned
from caraway.errors import UnavailableError, shortened
from caraway.graph.systems import IcebergSystem, Secretish

# The catalog property that lists, as JSON, the folders of this machine in which files may be.
FOLDERS = "caraway.local-folders"
# The catalog property that lists, as JSON, the addresses below which files are read and written with the server's own
# identity.
OWN_RIGHTS = "caraway.own-rights"
# The database servers that can hold a catalog, by SQLAlchemy's names for them, and the libraries that open them.
DATABASES = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
# The properties that are accepted from a REST catalog: those of the catalog itself, and those of the files of its
# tables. Others are ignored, although `pyiceberg` would use them: some name code to run, files to open, or roles and
# profiles of the server.
CATALOG_SAYS = frozenset({"uri", "prefix", "warehouse", "token", "namespace-separator"})
FILES_SAY = frozenset(
    {
        *(f"s3.{name}" for name in ("access-key-id", "secret-access-key", "session-token", "region", "endpoint")),
        *(f"adls.{name}" for name in ("account-name", "account-key", "sas-token")),
        *(f"adls.{name}" for name in ("tenant-id", "client-id", "client-secret")),
        *("s3.anonymous", "s3.force-virtual-addressing", "client.region"),
        *("gcs.oauth2.token", "gcs.oauth2.token-expires-at"),
    }
)
# The URL schemes that files may have.
SCHEMES = frozenset({"file", "s3", "s3a", "s3n", "oss", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs"})
# The permitted names of Azure's accounts. A name becomes a part of an address, so one with other characters could lead
# to another host.
ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
# The properties with credentials for files, by the URL scheme of the files.
_S3_ACCESS = ("s3.access-key-id",)
_GOOGLE_ACCESS, _AZURE_ACCESS = ("gcs.oauth2.token",), ("adls.account-key", "adls.sas-token", "adls.client-secret")
CREDENTIALS = {
    **dict.fromkeys(("s3", "s3a", "s3n", "oss"), _S3_ACCESS),
    **dict.fromkeys(("gs", "gcs"), _GOOGLE_ACCESS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE_ACCESS),
}
# Time limits in seconds: for a connection to S3, and for an answer.
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
        if scheme not in SCHEMES:
            raise UnavailableError(f"{location} isn't read: {scheme} is none of {', '.join(sorted(SCHEMES))}")
        if scheme == "file":
            check_local(path, json.loads(str(self.properties.get(FOLDERS, "[]"))), location)
            return
        # If neither the definition nor the catalog has credentials, the library uses the server's own identity. The
        # identity may be used only below the addresses of the property `OWN_RIGHTS`.
        own = self.properties.get(OWN_RIGHTS)
        if own is not None and not any(self.properties.get(name) for name in CREDENTIALS[scheme]):
            address = _own_address(location)
            if ".." in address.split("/") or not is_below(address, json.loads(str(own))):
                raise UnavailableError(withheld("Iceberg", address))


class _Files(Catalog):
    """A catalog whose files are always opened by `GuardedFiles`, and of whose tables none names code."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        del location
        # All tables come through this method with their properties. The refused property names code that `pyiceberg`
        # would run to name new files.
        if (name := TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL) in properties:
            raise UnavailableError(f"the table has the property {name}, which names code that isn't run; remove it")
        return GuardedFiles(self.properties)


class _DatabaseCatalog(_Files, SqlCatalog):
    """A catalog in a database."""


class _RestCatalog(_Files, RestCatalog):
    """A catalog behind HTTP, of whose answers only what is known to be harmless has an effect."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        # The session ignores the server's environment: a catalog may redirect to any address, for which the passwords
        # of ~/.netrc and the proxies aren't meant. Only the certificate authorities are taken from the environment.
        session.trust_env = False
        if session.verify is True:
            session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        return session

    def _fetch_config(self) -> None:
        own = self.properties
        super()._fetch_config()
        self.properties = own | _said(self.properties, CATALOG_SAYS | FILES_SAY)
        if not str(self.properties["uri"]).startswith(("http://", "https://")):
            raise UnavailableError(f"the catalog at {own['uri']} names an address that isn't http(s)://...")
        self.uri = self.properties["uri"]
        self._own_endpoint = own.get("s3.endpoint")

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        table = super()._response_to_table(identifier_tuple, table_response)
        credentials = self._resolve_storage_credentials(
            table_response.storage_credentials, table_response.metadata_location
        )
        given = self.properties | _said(table_response.config, FILES_SAY) | _said(credentials, FILES_SAY)
        if not given.get("s3.access-key-id"):
            # Without keys, requests are signed with the server's own identity. So they go to the endpoint of the
            # definition, and not to one that the catalog names.
            given["s3.endpoint"] = self._own_endpoint
        table.io = GuardedFiles(given)
        return table


def _said(answer: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return what is known of an answer of a catalog."""
    said = {name: value for name, value in answer.items() if name in known and isinstance(value, str)}
    if not ACCOUNT.fullmatch(said.get("adls.account-name", "")):
        said.pop("adls.account-name", None)
    return said


def _own_address(location: str) -> str:
    """Return the address of a file as the setting `connectors.own_rights` writes it."""
    parts = urlsplit(location)
    if parts.scheme in {"s3", "s3a", "s3n", "oss"}:
        return f"s3://{parts.netloc}{parts.path}"
    if parts.scheme in {"gs", "gcs"}:
        return f"gs://{parts.netloc}{parts.path}"
    container, _, host = parts.netloc.partition("@")
    return f"az://{host.partition('.')[0]}/{container}{parts.path}"


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
    uri, hold = resolve(system.uri), current()
    properties: dict[str, str] = {
        "uri": uri,
        "py-io-impl": f"{GuardedFiles.__module__}.{GuardedFiles.__name__}",
        FOLDERS: json.dumps(list(local_folders)),
        **({} if hold is None or hold.own_rights is None else {OWN_RIGHTS: json.dumps(hold.own_rights)}),
        "s3.connect-timeout": str(CONNECT_S),
        "s3.request-timeout": str(REQUEST_S),
        # `pyiceberg` doesn't create its tables in a user's database: one that is a catalog has them already.
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
        # A store at an address of its own has no regions, so the name of any region will do.
        properties |= {"s3.endpoint": address, "s3.region": "us-east-1"}
    is_rest = uri.startswith(("http://", "https://"))
    if not is_rest:
        properties["uri"] = _database(system, uri, local_folders)
    with translated_errors(f"Iceberg {system.name}", system, resolve):
        # `load_catalog` isn't used, since it would add the settings that the server's environment and ~/.pyiceberg.yaml
        # have for a catalog of this name.
        return (_RestCatalog if is_rest else _DatabaseCatalog)(system.catalog or system.name, **properties)


def _database(system: IcebergSystem, uri: str, local_folders: Sequence[str]) -> str:
    """Return the URL of a database, which has no options: those of its driver may name files of the server."""
    where = f"Iceberg {system.name}"
    try:
        url = make_url(uri)
    except ArgumentError:
        raise UnavailableError(
            f"{where}: uri is http(s)://... for a REST catalog, or the URL of a database, such as "
            "postgresql+psycopg://user:password@host/database"
        ) from None
    if url.query:
        raise UnavailableError(
            f"{where}: the options {', '.join(url.query)} of uri aren't possible; leave them out, so that it is "
            "postgresql://user:password@host:port/database"
        )
    kind = url.get_backend_name()
    if kind == "sqlite":
        check_local(url.database or "", local_folders, f"{where}: the database {url.database}")
        return URL.create("sqlite", database=url.database).render_as_string()
    if kind not in DATABASES:
        raise UnavailableError(f"{where}: a catalog is in Postgres or MySQL, not in {kind}")
    if not (url.username and url.password):
        # Without a user and a password in the URL, libraries take those of the server's environment and files.
        raise UnavailableError(f"{where}: uri needs a user and a password, as {kind}://user:password@host/database")
    place = url.set(drivername=f"{kind}+{DATABASES[kind]}", host=checked_host(url.host or ""))
    if kind == "postgresql" and "," not in (place.host or ""):
        addresses = str(pinned(place.host or "", place.port or 5432).get("hostaddr", "")).split(",")
        if addresses[0]:
            place = place.update_query_dict({"hostaddr": addresses[0]})
    return place.render_as_string(hide_password=False)


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
