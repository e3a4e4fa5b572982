"""The rights of the process of a connector: the files, variables and secrets that its definition needs."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from caraway.dataplane.addresses.limits import ENDPOINTS, ConnectorLimits, claims_of
from caraway.errors import CarawayError, UnknownEntityError
from caraway.graph.connectors import Connector, FilesConnector, IcebergConnector
from caraway.graph.systems import FilesSystem, Secretish, SecretRef
from caraway.process.confinement import system
from caraway.process.confinement.policy import Confinement

# The environment variables of the server that all connectors get, besides `_AUTHORITIES`. None of them is a secret:
# libraries find systems by them.
_VARIABLES = (
    "AWS_ALLOW_HTTP",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_REGION",
    *ENDPOINTS,
)
_AUTHORITIES = ("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
# The prefixes of the variables from which the libraries of clouds take the server's identity. Then the files with the
# identity: the variable that names each file, and the path of the file if the variable isn't set.
_IDENTITY = ("AWS_", "AZURE_", "CLOUDSDK_", "GOOGLE_")
_IDENTITY_FILES: Mapping[str, str | None] = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "AWS_WEB_IDENTITY_TOKEN_FILE": None,
    "AZURE_FEDERATED_TOKEN_FILE": None,
    "CLOUDSDK_CONFIG": "~/.config/gcloud",
    "GOOGLE_APPLICATION_CREDENTIALS": None,
}
# The capability to access processes of other users (linux/capability.h), without which no connection can be opened for
# them.
_CAP_SYS_PTRACE = 19


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of the process of a connector.

    Attributes:
        confinement: The files that it may read, and the other limits.
        environment: All of its variables that aren't those of every process.
    """

    confinement: Confinement
    environment: Mapping[str, str]


def rights_of(
    limits: ConnectorLimits,
    connector: Connector,
    resolve: Callable[[Secretish], str],
    *,
    local_folders: Sequence[str] = (),
    ca_file: str = "",
    writes: bool = False,
) -> Rights:
    """Return the rights of a connector that the limits allow.

    Args:
        limits: The limits of connectors.
        connector: The connector.
        resolve: Returns the values of secrets, and of files only those that definitions may name.
        local_folders: The folders that sources may read.
        ca_file: The file with the authorities by which systems are verified; empty for those of the machine.
        writes: True if the connector is a sink.
    """
    environment = {name: os.environ[name] for name in (*_VARIABLES, *_AUTHORITIES) if name in os.environ}
    readable = [environment[name] for name in _AUTHORITIES if name in environment]
    readable += [ca_file] if ca_file else []
    readable += [path for path in _named_files(connector) if _may_be_named(path, resolve)]
    readable += _folders(connector, local_folders)
    if _has_identity(limits, connector, writes=writes):
        environment |= {name: value for name, value in os.environ.items() if name.startswith(_IDENTITY)}
        for name, usual in _IDENTITY_FILES.items():
            path = os.environ.get(name) or (usual and str(Path(usual).expanduser()))
            if path and Path(path).exists():
                environment[name] = path
                readable.append(path)
    given = limits.confinement
    user = given.user if _may_look_into_others() else os.geteuid()
    paths = tuple(Path(path).resolve() for path in readable)
    return Rights(replace(given, readable=paths, user=user), environment)


def secrets_of(connector: Connector, resolve: Callable[[Secretish], str]) -> Callable[[object, object, object], str]:
    """Return the look-up of the secrets that a connector's definition names, for the questions of its process."""
    named = {*_references(connector), *(SecretRef(arn=f"file:{path}") for path in _named_files(connector))}

    def look_up(arn: object, role_arn: object, path: object) -> str:
        parts = path if isinstance(path, list) else ()
        asked = SecretRef(arn=str(arn), role_arn=None if role_arn is None else str(role_arn), path=tuple(parts))
        if asked not in named:
            raise UnknownEntityError(f"secret {asked.arn}: the definition of {connector.identifier} doesn't name it")
        return resolve(asked)

    return look_up


def _references(value: object) -> Iterator[SecretRef]:
    """Yield the references to secrets in a definition."""
    if isinstance(value, SecretRef):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _references(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _references(tuple(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _references(each)


def _named_files(connector: Connector) -> list[str]:
    """Return what may be files of the server's machine in the parameters of a database."""
    text = getattr(getattr(connector, "system", None), "jdbc_params", None) or ""
    values = (unquote(pair.partition("=")[2]) for pair in text.lstrip("?").split("&"))
    return [value for value in values if value.startswith("/")]


def _may_be_named(path: str, resolve: Callable[[Secretish], str]) -> bool:
    try:
        resolve(SecretRef(arn=f"file:{path}"))
    except CarawayError:
        return False
    return True


def _folders(connector: Connector, local_folders: Sequence[str]) -> list[str]:
    """Return the folders of this machine that a connector reads, as far as sources may read them."""
    match connector:
        case FilesConnector(system=FilesSystem(), container=container):
            folder = Path(container).resolve()
            allowed = any(folder.is_relative_to(Path(each).resolve()) for each in local_folders)
            return [str(folder)] if allowed else []
        case IcebergConnector():
            # Only the catalog knows where its tables are, so the process may read each of these folders.
            return list(local_folders)
        case _:
            return []


def _has_identity(limits: ConnectorLimits, connector: Connector, *, writes: bool) -> bool:
    """Return whether a connector may use the server's own identity in a cloud, as `ConnectorLimits.check` allows."""
    if limits.own_rights is None:
        return True
    if isinstance(connector, IcebergConnector):
        # Only the catalog knows where the files are, and whether there are keys for them. So the process gets the
        # identity if connectors may use it anywhere.
        return bool(limits.own_rights)
    return any(True for _ in claims_of(connector, writes=writes, endpoints=limits.endpoints))


def _may_look_into_others() -> bool:
    """Return whether this process may open connections for those of another user; if not, they stay its own user's."""
    if not system.LINUX or os.geteuid() != 0:
        return True
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return bool(effective >> _CAP_SYS_PTRACE & 1)
