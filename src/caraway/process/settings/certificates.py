"""The certificate by which the HTTP server shows who it is: whether it can be used, for which names, and how long."""

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509

from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.server import ServerSettings

# A warning is shown when a certificate expires in less than this time, which is long enough to get another one.
SOON = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that can be used with its key.

    Attributes:
        ends: The time after which clients refuse it.
    """

    ends: datetime


def certificate_of(server: ServerSettings) -> Certificate | None:
    """Return the certificate of the settings; None if the server speaks no TLS.

    Raises `ConfigurationError` if the certificate or its key can't be read, don't belong together, or it has ended.
    """
    file, key = server.certificate_file, server.key_file
    if file is None or key is None:
        return None
    about = f"server.certificate_file and server.key_file: {file} with {key}"
    try:
        # With an empty password, a key that has a passphrase is refused; OpenSSL doesn't ask for it on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key, password="")
        found = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{about} can't be used ({error}). Name a certificate in PEM, with those of the authorities between it and "
            "the root after it, and its key in PEM without a passphrase, which the server's user may read"
        ) from error
    if found.not_valid_after_utc < datetime.now(UTC):
        raise ConfigurationError(f"{about}: the certificate ended at {found.not_valid_after_utc}; get another one")
    return Certificate(found.not_valid_after_utc)


def client_url(server: ServerSettings) -> str | None:
    """Return the URL for clients on this machine; if the server has a certificate, with a host that it names.

    Raises `OSError` or `ValueError` if the certificate can't be read, which `certificate_of` checks with a remedy.
    """
    if server.certificate_file is None or server.url is None:
        return server.url
    host = server.url.removeprefix("https://").rpartition(":")[0].strip("[]")
    names = _names(x509.load_pem_x509_certificate(server.certificate_file.read_bytes()))
    if host in names or not (named := [name for name in names if not name.startswith("*")]):
        return server.url
    return f"https://{f'[{named[0]}]' if ':' in named[0] else named[0]}:{server.port}"


def check_names(server: ServerSettings) -> None:
    """Check that a name of the server's certificate leads somewhere, since clients refuse all other names.

    Raises `ConfigurationError` if none does on this machine, whose commands reach the server by such a name.
    """
    if server.certificate_file is None:
        return
    names = _names(x509.load_pem_x509_certificate(server.certificate_file.read_bytes()))
    if not any(name.startswith("*") or _leads_somewhere(name) for name in names):
        raise ConfigurationError(
            "server.certificate_file: no client of this machine could reach the server, since "
            f"{server.certificate_file} is for {', '.join(names) or 'no name'} only, which leads nowhere. Put such a "
            "name into the DNS or into /etc/hosts, or name a certificate for a name of this machine"
        )


def warning_of(server: ServerSettings) -> str:
    """Return what an operator should know about the way to the server: tokens in clear, or a certificate that ends."""
    try:
        certificate = certificate_of(server)
    except ConfigurationError as error:
        return str(error)
    if certificate is not None and certificate.ends - datetime.now(UTC) < SOON:
        return (
            f"The server's certificate ends at {certificate.ends}: put another one into server.certificate_file and "
            "server.key_file, and restart the server."
        )
    if certificate is None and not is_loopback(server.host) and not server.trusted_proxies:
        return (
            f"Tokens and rows travel in clear, since the server listens on {server.host} without TLS: set "
            "server.certificate_file and server.key_file, or name the proxy that ends TLS in server.trusted_proxies."
        )
    return ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address or a name."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _leads_somewhere(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))
