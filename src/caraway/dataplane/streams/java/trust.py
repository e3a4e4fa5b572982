"""The certificates that Python trusts, given to a JVM whose own list lacks those of this machine's network."""

import re
import ssl
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.utils import CryptographyDeprecationWarning

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def trust_options(folder: Path) -> list[str]:
    """Write a trust store into `folder`, and return the options of a JVM that uses it.

    The store has the certificates that OpenSSL finds in its usual folders, and by SSL_CERT_FILE and SSL_CERT_DIR. If it
    finds none, as on macOS with a Python whose certificates weren't installed, no options are returned, and the JVM
    keeps its own list.
    """
    # A certificate may be found in a bundle and again in a file of its own; the store needs it only once.
    certificates = list({certificate.subject.rfc4514_string(): certificate for certificate in _trusted()}.values())
    if not certificates:
        return []
    store = folder / "trusted.p12"
    named = [PKCS12Certificate(certificate, b"%d" % number) for number, certificate in enumerate(certificates)]
    # The store has nothing secret in it, so it needs no password.
    store.write_bytes(serialize_java_truststore(named, NoEncryption()))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=PKCS12"]


def _trusted() -> Iterator[x509.Certificate]:
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        yield from _certificates(Path(paths.cafile))
    elif paths.capath:
        # OpenSSL looks for files named by the hash of a certificate's name, such as 5ed36f99.0.
        for path in sorted(Path(paths.capath).glob("????????.[0-9]")):
            yield from _certificates(path)


def _certificates(path: Path) -> Iterator[x509.Certificate]:
    try:
        content = path.read_bytes()
    except OSError:  # The file may be a link whose target is missing.
        return
    for found in _PEM.findall(content):
        # Some old authorities have malformed certificates, which must not make all others unusable.
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            yield x509.load_pem_x509_certificate(found)
