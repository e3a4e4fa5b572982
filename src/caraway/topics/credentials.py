"""How clients of this process sign in at a broker: with the user and password of the settings, if these name one.

The embedded broker has a password, since every user of the machine reaches its port. It travels over the loopback
interface alone, where nobody but root can listen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from caraway.config import ConfigurationError, KafkaSettings

_PROTOCOL, _MECHANISM = "SASL_PLAINTEXT", "PLAIN"
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class _Credentials:
    user: str
    password: str = field(repr=False)


# By the addresses of the brokers, as clients are given them.
_known: dict[str, _Credentials] = {}


def sign_in(kafka: KafkaSettings) -> str:
    """Let the clients that this process makes from now on sign in as settings say; return where the brokers are.

    Raises:
        ConfigurationError: The settings don't name the brokers.
    """
    if kafka.bootstrap_servers is None:
        raise ConfigurationError("kafka.bootstrap_servers must be known (set CARAWAY_KAFKA__BOOTSTRAP_SERVERS)")
    if kafka.user is None or kafka.password is None:
        _known.pop(kafka.bootstrap_servers, None)
    else:
        _known[kafka.bootstrap_servers] = _Credentials(kafka.user, kafka.password)
    return kafka.bootstrap_servers


def client_options(bootstrap_servers: str) -> Mapping[str, str]:
    """Return what librdkafka needs to sign in; nothing if the broker asks for no password."""
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
    """Return the options of Spark's Kafka source and sink: where the broker is, and how to sign in."""
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
    """Return a login for Java, and for a broker the users that it knows."""
    known = "".join(f' user_{name}="{secret}"' for name, secret in users)
    return f'{_LOGIN_MODULE} required username="{user}" password="{password}"{known};'
