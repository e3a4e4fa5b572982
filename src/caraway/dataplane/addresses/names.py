"""Parsing of the names of tables and of the parameters of JDBC."""

import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from caraway.errors import UnavailableError
from caraway.graph.systems import Secretish, SecretRef

_PART = re.compile(r'\s*("(?:[^"]|"")+"|`(?:[^`]|``)+`|[^."`]+)\s*')


def name_parts(name: str, where: str) -> list[str]:
    """Return the parts of a name with a schema, such as `public.hives` or `"My schema".hives`.

    Raises:
        UnavailableError: The name isn't written like that.
    """
    parts: list[str] = []
    at = 0
    while (found := _PART.match(name, at)) is not None:
        part = found[1]
        quote = part[0]
        parts.append(part[1:-1].replace(quote * 2, quote) if quote in '"`' else part.strip())
        at = found.end()
        if at == len(name):
            return parts
        if name[at] != ".":
            break
        at += 1
    raise UnavailableError(f'{where}: {name!r} is no name of a table; write it as table, schema.table or "a.b".table')


# For each JDBC parameter, by its name in lower case: the function from its value to the settings of a driver. A value
# that isn't possible makes the function raise `KeyError` or `ValueError`.
Parameters = Mapping[str, Callable[[str], Mapping[str, object]]]


# The driver settings whose values are paths of files on the server's machine, and the only value that isn't a path:
# libpq's word for the certificate authorities of the operating system.
_FILES, _SYSTEM = ("sslrootcert", "sslcert", "sslkey", "files"), ("sslrootcert", "system")


def jdbc_params(
    text: str | None, known: Parameters, where: str, resolve: Callable[[Secretish], str]
) -> dict[str, object]:
    """Return the settings of a driver that the `k=v` pairs of a JDBC address stand for.

    Args:
        text: The pairs, joined with `&`.
        known: The parameters that have a meaning here.
        where: The system, for messages.
        resolve: Returns the values of secrets, and of files only those that definitions may name.

    Raises:
        UnavailableError: A parameter isn't known, or has no such value.
        UnknownEntityError: A file isn't one that definitions may name.
    """
    settings: dict[str, object] = {}
    for pair in (text or "").lstrip("?").split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        make = known.get(name.casefold())
        if make is None:
            names = ", ".join(sorted(known))
            raise UnavailableError(
                f"{where}: the parameter {name!r} of jdbc_params isn't known here; known ones (in any case): {names}"
            )
        try:
            settings |= make(unquote(value))
        except (KeyError, ValueError):
            raise UnavailableError(f"{where}: the parameter {name} of jdbc_params can't be {value!r}") from None
    for name in _FILES:
        if name in settings and (name, settings[name]) != _SYSTEM:
            resolve(SecretRef(arn=f"file:{settings[name]}"))
    return settings


def truth(text: str) -> bool:
    """Return a truth value; raises `KeyError` for another text."""
    return {"true": True, "false": False, "": True}[text.casefold()]


# One host name, or several with commas between them. Other characters could turn a name into the path of a Unix socket
# on the server's machine, where a database may trust the server's own user, or could add options to an address.
HOSTS = re.compile(r"[\w.:\-\[\]]+(,[\w.:\-\[\]]+)*")


def host_and_port(address: str | None, host: str, port: int) -> tuple[str, int]:
    """Return where a system is: at the address of the deployment's settings, or else at that of its definition."""
    if address is None:
        return checked_host(host), port
    name, _, number = address.rpartition("://")[2].rstrip("/").rpartition(":")
    return (name, int(number)) if name and number.isdecimal() else (address, port)


def checked_host(host: str) -> str:
    """Return the name of a host, or several with commas between them. Raises `UnavailableError` for anything else."""
    if not HOSTS.fullmatch(host):
        # The host may be a secret, so it isn't shown.
        raise UnavailableError(
            "the host of the definition is neither a name nor an IP address; write one, or have the operator set "
            "another way to the system by sources.endpoints"
        )
    return host
