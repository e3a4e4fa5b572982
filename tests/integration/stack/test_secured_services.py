"""The stack with services as a company's cloud has them: all connections by TLS, with sign-in."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa

from caraway.apps.stack.stack import Stack
from caraway.client import find_server
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import load_settings
from tests.services.certificates import write_certificates
from tests.services.oidc import AUDIENCE, running_provider
from tests.services.postgres_tls import tls_before
from tests.services.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.timeouts import scaled

ANOTHER_NAME = "features.invalid"
# Number of new connections that reach both of the server's workers, except once in a million times.
MANY = 20


@dataclass(frozen=True, slots=True)
class Services:
    """A Kafka (SASL_SSL) and a Postgres behind TLS, and the certificate for the server.

    Attributes:
        environment: The settings of a stack that uses them, and of its clients.
        folder: The folder with the authority of Postgres and the server, `ca.pem`, and their certificate, `own.pem`.
            `other-ca.pem` and `other.pem` are of another one, for another name.
    """

    environment: Mapping[str, str]
    folder: Path


@pytest.fixture
def services(secured: SecuredKafka, empty_postgres: str, tmp_path: Path) -> Iterator[Services]:
    write_certificates(tmp_path / "ca.pem", tmp_path / "own.pem")
    write_certificates(tmp_path / "other-ca.pem", tmp_path / "other.pem", ANOTHER_NAME)
    port = sa.make_url(empty_postgres).port or 0
    with tls_before(port, tmp_path / "own.pem") as front:
        url = empty_postgres.replace(f":{port}/", f":{front}/")
        settings = {
            "KAFKA__BOOTSTRAP_SERVERS": secured.addresses["SASL_SSL"],
            "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
            "KAFKA__USER": USER,
            "KAFKA__PASSWORD": PASSWORD,
            "KAFKA__CA_FILE": str(secured.ca_file),
            "POSTGRES__URL": f"{url}?sslmode=verify-full&sslrootcert={tmp_path / 'ca.pem'}",
            "SERVER__CERTIFICATE_FILE": str(tmp_path / "own.pem"),
            "SERVER__KEY_FILE": str(tmp_path / "own.pem"),
        }
        environment = {f"CARAWAY_{name}": value for name, value in settings.items()}
        yield Services({**environment, "SSL_CERT_FILE": str(tmp_path / "ca.pem")}, tmp_path)


def caraway(*arguments: str, environment: Mapping[str, str]) -> str:
    """Run a command, and return what it has printed."""
    done = subprocess.run(
        [sys.executable, "-m", "caraway.apps.cli", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(280),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.full(reason="a whole stack of its own and a day of flights; the refusals below are in each run")
@pytest.mark.timeout(600)
def test_the_demo_runs_with_tls_and_sign_in_everywhere(services: Services, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running_provider() as provider:
        environment = {
            **services.environment,
            "CARAWAY_SERVER__WORKERS": "2",
            "CARAWAY_OIDC__ISSUER": provider.issuer,
            "CARAWAY_OIDC__AUDIENCE": AUDIENCE,
            "CARAWAY_OIDC__ROLES": '{"features": ["queries"]}',
        }
        try:
            assert "ready at https://127.0.0.1:" in caraway("up", "--detach", "--data", data, environment=environment)
            server = find_server(data_dir=Path(data))
            said = caraway("demo", "--quick", "--url", server.url, environment=environment)
            assert "3,700 of 3,700 values agree" in said
            caraway("roles", "define", "queries", "--may", "read-data", "--data", data, environment=environment)
            trusted = ssl.create_default_context(cafile=services.folder / "ca.pem")
            codes = [
                httpx2.post(
                    f"{server.url}/api/v1/dataset/FlightConditions/lookup",
                    json={"keys": [{"flight_id": "none"}], "fields": ["wind"]},
                    headers={"Authorization": f"Bearer {token}"},
                    verify=trusted,
                ).status_code
                for token in [provider.token()] * MANY + [provider.token(groups=["others"])]
            ]
            assert codes == [200] * MANY + [403]
        finally:
            caraway("down", "--data", data, environment=environment)


def refusal(services: Services, monkeypatch: pytest.MonkeyPatch, **changes: str) -> str:
    """Return why a stack with other settings doesn't start."""
    for name, value in {**services.environment, **changes}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught, Stack(load_settings(services.folder / "data")):
        pass
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("KAFKA__CA_FILE", "{folder}/other-ca.pem", "an authority in kafka.ca_file must have signed"),
        ("KAFKA__BOOTSTRAP_SERVERS", "localhost:{port}", "kafka.bootstrap_servers must name it as the certificate"),
    ],
)
def test_a_wrong_certificate_of_kafka_is_refused_with_the_remedy(
    services: Services, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, said: str
) -> None:
    port = services.environment["CARAWAY_KAFKA__BOOTSTRAP_SERVERS"].rpartition(":")[2]
    wrong = value.format(folder=services.folder, port=port)
    assert said in refusal(services, monkeypatch, **{f"CARAWAY_{setting}": wrong})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("/ca.pem", "/other-ca.pem", "sslrootcert of postgres.url must have the authority"),
        ("@127.0.0.1:", "@localhost:", "postgres.url must name the host as the server's certificate does"),
    ],
)
def test_a_wrong_certificate_of_postgres_is_refused_with_the_remedy(
    services: Services, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    wrong = services.environment["CARAWAY_POSTGRES__URL"].replace(old, new)
    assert said in refusal(services, monkeypatch, CARAWAY_POSTGRES__URL=wrong)


def test_a_certificate_under_whose_names_no_client_finds_the_server_is_refused_with_the_remedy(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = str(services.folder / "other.pem")
    changes = {"CARAWAY_SERVER__CERTIFICATE_FILE": other, "CARAWAY_SERVER__KEY_FILE": other}
    said = refusal(services, monkeypatch, **changes)
    assert f"is for {ANOTHER_NAME} only" in said
    assert "name a certificate for a name of this machine" in said
