"""The sign-in of this process's clients at a broker, with the user and password of the settings if these contain them.

The embedded broker requires a password, since every user of the machine can reach its port. The password travels over
the loopback interface only, where nobody but root can listen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from caraway.config.errors import ConfigurationError
from caraway.config.settings import KafkaSettings

_PROTOCOL, _MECHANISM = "SASL_PLAINTEXT", "PLAIN"
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class _Credentials:
    user: str
    password: str = field(repr=False)


# The credentials by `bootstrap_servers`, compared as text. So clients must pass the addresses as `sign_in` returned
# them, or they connect without a password.
_known: dict[str, _Credentials] = {}


def sign_in(kafka: KafkaSettings) -> str:
    """Register the settings' credentials for all clients made from now on, and return the addresses of the brokers.

    Raises `ConfigurationError` if the settings have no addresses of brokers.
    """
    if kafka.bootstrap_servers is None:
        raise ConfigurationError("kafka.bootstrap_servers must be known (set CARAWAY_KAFKA__BOOTSTRAP_SERVERS)")
    if kafka.user is None or kafka.password is None:
        _known.pop(kafka.bootstrap_servers, None)
    else:
        _known[kafka.bootstrap_servers] = _Credentials(kafka.user, kafka.password)
    return kafka.bootstrap_servers


def client_options(bootstrap_servers: str) -> Mapping[str, str]:
    """Return librdkafka's settings to sign in; empty if the broker asks for no password."""
    known = _known.get(bootstrap_servers)
    if known is None:
        return {}
    return {
        "security.protocol": _PROTOCOL,
        "sasl.mechanism": _MECHANISM,
        "sasl.username": known.user,
        "sasl.password": known.password,
    }


def spark_options(bootstrap_servers: str) -> Mapping[str, str]:
    """Return the options of Spark's Kafka source and sink: the broker's address and how to sign in."""
    known = _known.get(bootstrap_servers)
    address = {"kafka.bootstrap.servers": bootstrap_servers}
    if known is None:
        return address
    return {
        **address,
        "kafka.security.protocol": _PROTOCOL,
        "kafka.sasl.mechanism": _MECHANISM,
        "kafka.sasl.jaas.config": login(known.user, known.password),
    }


def login(user: str, password: str, *users: tuple[str, str]) -> str:
    """Return a login for Java; for a broker it also contains the users that may sign in there."""
    known = "".join(f' user_{name}="{secret}"' for name, secret in users)
    return f'{_LOGIN_MODULE} required username="{user}" password="{password}"{known};'
