"""The way of this process's clients to their brokers: encryption, sign-in and replication, as the settings say.

Only this module knows the protocols of Kafka: it gives the settings of librdkafka, by which Python's clients connect,
and those of Java's clients, which Spark has. The embedded broker requires a password, since every user of the machine
can reach its port. Its clients sign in by SCRAM, so that whoever passes for the broker gets no password.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path

from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.kafka import KafkaSettings

_MODULES = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
_TOKENS = f"{_MODULES}.oauthbearer.OAuthBearerLogin"

# The settings of brokers, by the text of `bootstrap_servers`. Clients must pass exactly the text that `sign_in` has
# returned: with any other text they connect without encryption and password.
_known: dict[str, KafkaSettings] = {}


def sign_in(kafka: KafkaSettings) -> str:
    """Register the settings for all clients made from now on, and return the addresses of the brokers.

    Raises `ConfigurationError` if the settings have no addresses of brokers, or a file of theirs can't be used.
    """
    if kafka.bootstrap_servers is None:
        raise ConfigurationError("kafka.bootstrap_servers must be known (set CARAWAY_KAFKA__BOOTSTRAP_SERVERS)")
    _check_files(kafka)
    _known[kafka.bootstrap_servers] = kafka
    return kafka.bootstrap_servers


def settings_of(bootstrap_servers: str) -> KafkaSettings:
    """Return the settings of these brokers; brokers that weren't registered need neither password nor encryption."""
    return _known.get(bootstrap_servers) or KafkaSettings(bootstrap_servers=bootstrap_servers)


def client_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return librdkafka's settings of the protocol, the files and the sign-in."""
    by_token = kafka.token_url is not None
    return _used(
        kafka,
        {
            "security.protocol": kafka.security_protocol,
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": None if by_token else kafka.user,
            "sasl.password": None if by_token else kafka.password,
            "sasl.oauthbearer.method": "oidc" if by_token else None,
            "sasl.oauthbearer.token.endpoint.url": kafka.token_url,
            "sasl.oauthbearer.client.id": kafka.user if by_token else None,
            "sasl.oauthbearer.client.secret": kafka.password if by_token else None,
            "sasl.oauthbearer.scope": kafka.token_scope,
            "ssl.ca.location": kafka.ca_file,
            "ssl.certificate.location": kafka.certificate_file,
            "ssl.key.location": kafka.key_file,
        },
    )


def java_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return the settings of Java's clients, with the contents of the files: Spark's executors may not have the files.

    Raises `OSError` if a file can't be read, which `sign_in` checks before.
    """
    return _used(
        kafka,
        {
            "security.protocol": kafka.security_protocol,
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.jaas.config": _java_login(kafka),
            "sasl.login.callback.handler.class": kafka.token_url and f"{_TOKENS}CallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": kafka.token_url,
            "ssl.truststore.type": kafka.ca_file and "PEM",
            "ssl.truststore.certificates": kafka.ca_file and kafka.ca_file.read_text(),
            "ssl.keystore.type": kafka.key_file and "PEM",
            "ssl.keystore.certificate.chain": kafka.certificate_file and kafka.certificate_file.read_text(),
            "ssl.keystore.key": kafka.key_file and kafka.key_file.read_text(),
        },
    )


def spark_options(bootstrap_servers: str) -> Mapping[str, str]:
    """Return the options of Spark's Kafka source and sink: the broker's address and how to connect."""
    options = {"bootstrap.servers": bootstrap_servers, **java_options(settings_of(bootstrap_servers))}
    return {f"kafka.{name}": value for name, value in options.items()}


def java_properties(kafka: KafkaSettings) -> list[str]:
    """Return the options of a JVM whose clients connect: Java's clients send a secret only to addresses listed here."""
    return [] if kafka.token_url is None else [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={kafka.token_url}"]


def _java_login(kafka: KafkaSettings) -> str | None:
    if kafka.token_url is None:
        return kafka.sasl_mechanism and login(kafka.user or "", kafka.password or "", kafka.sasl_mechanism)
    given = {"clientId": kafka.user, "clientSecret": kafka.password, "scope": kafka.token_scope}
    options = " ".join(f'{name}="{value}"' for name, value in given.items() if value)
    return f"{_TOKENS}Module required {options};"


def login(user: str, password: str, mechanism: str) -> str:
    """Return a login for Java."""
    return f'{_LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'


def _used(kafka: KafkaSettings, options: Mapping[str, str | Path | None]) -> dict[str, str]:
    """Return the options that have a value and are for the protocol: `sasl.` with SASL, `ssl.` with TLS."""
    parts = ("security", *kafka.security_protocol.lower().split("_"))
    return {name: str(value) for name, value in options.items() if value and name.partition(".")[0] in parts}


def _check_files(kafka: KafkaSettings) -> None:
    """Raise `ConfigurationError` if a file can't be read or isn't what the clients need."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings = f"kafka.ca_file: {kafka.ca_file}"
    try:
        if kafka.ca_file is not None:
            context.load_verify_locations(kafka.ca_file)
        if kafka.certificate_file is not None and kafka.key_file is not None:
            settings = f"kafka.certificate_file and kafka.key_file: {kafka.certificate_file} with {kafka.key_file}"
            # The empty password makes OpenSSL refuse a key that has a passphrase. Without the argument OpenSSL would
            # ask for the passphrase on the terminal.
            context.load_cert_chain(kafka.certificate_file, kafka.key_file, password="")
    except OSError as error:
        raise ConfigurationError(f"{settings} can't be used ({error})") from error
    # Java's clients accept a key only in this form.
    if kafka.key_file is not None and "-----BEGIN PRIVATE KEY-----" not in kafka.key_file.read_text():
        raise ConfigurationError(
            f"kafka.key_file: {kafka.key_file} must be a key in PKCS #8 without a passphrase (BEGIN PRIVATE KEY); "
            f"convert it by `openssl pkcs8 -topk8 -nocrypt -in {kafka.key_file}`"
        )
