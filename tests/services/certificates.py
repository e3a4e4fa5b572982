"""Certificates for servers of tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificates(ca_file: Path, keystore: Path, host: str | None = None) -> None:
    """Make an authority, and a key with its certificate, both in one file.

    Args:
        ca_file: The authority's certificate.
        keystore: The key with its certificate.
        host: The name for which the certificate is; None: the address of this machine.
    """
    named = x509.IPAddress(IPv4Address("127.0.0.1")) if host is None else x509.DNSName(host)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    now = datetime.now(UTC)

    def certificate(subject: x509.Name, public: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([named]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )

    pem = serialization.Encoding.PEM
    ca_file.write_bytes(certificate(authority, ca_key.public_key(), is_ca=True).public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    keystore.write_bytes(secret + certificate(server, key.public_key(), is_ca=False).public_bytes(pem))
