"""A private Kafka broker for tests: it asks for passwords (SASL_PLAINTEXT, SASL_SSL), a certificate (SSL) or a JWT."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from typing_extensions import override

from caraway.apps.stack import ports
from caraway.apps.stack.jars import ensure_jars
from caraway.apps.stack.kafka import EmbeddedKafka, kafka_classes
from caraway.process.children import process
from caraway.process.settings.settings import load_settings
from tests.services.certificates import write_certificates
from tests.services.oidc import AUDIENCE, IdentityProvider, running_provider
from tests.timeouts import deadline_in

USER, PASSWORD = "ada", "test-password"
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_MODULES = "org.apache.kafka.common.security"
_TOKENS = f"{_MODULES}.oauthbearer"
TOKENS = "OAUTHBEARER"


class _SecuredKafka(EmbeddedKafka):
    """The embedded broker with more listeners; the first one, for the test itself, asks for no password."""

    more_ports: tuple[int, int, int, int]
    issuer: str
    keystore: Path
    ca_file: Path

    @override
    def _security(self) -> dict[str, str]:
        sasl, tls, mutual, tokens = self.more_ports
        listeners = (
            f"SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},MUTUAL://127.0.0.1:{mutual},TOKENS://127.0.0.1:{tokens}"
        )
        clients = f"CLIENT://127.0.0.1:{self.port}"
        plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        logins = {
            f"listener.name.{name}.{mechanism}.sasl.jaas.config": module
            for name in ("sasl", "tls")
            for mechanism, module in {"plain": plain, "scram-sha-256": scram, "scram-sha-512": scram}.items()
        }
        return {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{self._controller_port},{listeners}",
            "advertised.listeners": f"{clients},{listeners}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL,"
            "MUTUAL:SSL,TOKENS:SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(["PLAIN", *MECHANISMS]),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": f"{_TOKENS}.OAuthBearerLoginModule required;",
            "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": f"{_TOKENS}"
            ".OAuthBearerValidatorCallbackHandler",
            "listener.name.tokens.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer}/keys",
            "listener.name.tokens.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.tokens.oauthbearer.sasl.oauthbearer.expected.issuer": self.issuer,
            **logins,
        }


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """A running broker.

    Attributes:
        open: The address at which it asks for no password.
        addresses: Its addresses by security protocol. That of SSL wants a certificate of the clients. That of `TOKENS`
            speaks SASL_SSL, and wants tokens of the provider.
        ca_file: The certificate of the authority that signed the broker's and the clients'.
        client_file: A key with its certificate, which the broker accepts from a client.
        provider: The identity provider whose tokens it accepts.
    """

    open: str
    addresses: dict[str, str]
    ca_file: Path
    client_file: Path
    provider: IdentityProvider

    def set_password(self, mechanism: str, password: str) -> None:
        """Change the password of `USER` for a mechanism of SCRAM."""
        admin = AdminClient({"bootstrap.servers": self.open})
        info = ScramCredentialInfo(MECHANISMS[mechanism], 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        admin.alter_user_scram_credentials([change])[USER].result(30)


@contextmanager
def running_secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Start a broker with its identity provider, yield it, and stop both afterwards."""
    with running_provider() as provider, _running(folder, provider) as broker:
        yield broker


@contextmanager
def _running(folder: Path, provider: IdentityProvider) -> Iterator[SecuredKafka]:
    chosen: list[int] = []
    for _ in range(6):
        chosen.append(ports.choose(avoid=chosen))
    port, controller, sasl, tls, mutual, tokens = chosen
    jars = ensure_jars(load_settings())
    options = [
        *kafka_classes(load_settings().cache_dir, jars.broker).options(),
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.issuer}/keys",
    ]
    part = _SecuredKafka(
        folder / "kafka",
        port=port,
        controller_port=controller,
        jars=jars.broker,
        heap_mb=256,
        java_options=options,
        with_password=False,
    )
    part.more_ports, part.issuer = (sasl, tls, mutual, tokens), provider.issuer
    part.keystore, part.ca_file = folder / "broker.pem", folder / "ca.pem"
    write_certificates(part.ca_file, part.keystore)
    part.prepare()
    log = folder / "kafka.log"
    child = process.start(part.launch(), log, SIGTERM)
    try:
        deadline = deadline_in(120)
        while (reason := part.check(child.pid)) is not None:
            assert child.poll() is None, log.read_text()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not start: {reason}")
            time.sleep(0.1)
        ports_of = {"PLAINTEXT": port, "SASL_PLAINTEXT": sasl, "SASL_SSL": tls, "SSL": mutual, TOKENS: tokens}
        addresses = {protocol: f"127.0.0.1:{number}" for protocol, number in ports_of.items()}
        # Nothing in the certificate says that it is a server's, so it is a client's as well.
        running = SecuredKafka(part.bootstrap_servers, addresses, part.ca_file, part.keystore, provider)
        for mechanism in MECHANISMS:
            running.set_password(mechanism, PASSWORD)
        yield running
    finally:
        process.stop(child, SIGTERM, 20)
