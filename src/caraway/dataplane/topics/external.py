"""Brokers of users, from which sources read and to which sinks write: how to sign in, and how errors name them."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from caraway.dataplane.topics.credentials import client_options
from caraway.graph.systems import KafkaSystem, Secretish
from caraway.process.settings.kafka import KafkaSettings


def external_settings(system: KafkaSystem, resolve: Callable[[Secretish], str], ca_file: str = "") -> dict[str, Any]:
    """Return the settings of each client of a user's brokers.

    Args:
        system: The brokers.
        resolve: Returns the values of secrets; raises `UnknownEntityError` or `UnavailableError`.
        ca_file: A file in PEM with the authorities that sign the brokers' certificates; empty for the system's own.
    """
    kafka = KafkaSettings.model_construct(
        security_protocol=system.security_protocol,
        sasl_mechanism=system.sasl_mechanism,
        user=None if system.username is None else resolve(system.username),
        password=None if system.password is None else resolve(system.password),
        ca_file=ca_file,
    )
    return {
        **client_options(kafka),
        "bootstrap.servers": system.bootstrap_servers,
        "log.connection.close": False,
    }


# The remedies for connection errors, by error code.
REMEDIES = {
    KafkaError._AUTHENTICATION: "; check sasl_mechanism, sasl_plain_username and sasl_plain_password",  # noqa: SLF001
    KafkaError._SSL: "; check security_protocol, and the setting sources.ca_file",  # noqa: SLF001
}


def place_of(system: KafkaSystem) -> str:
    """Return the brokers as messages name them."""
    return f"Kafka {system.name} at {system.bootstrap_servers}"


def text_of(error: KafkaException) -> str:
    """Return the text of an error."""
    cause = error.args[0]
    return cause.str() if isinstance(cause, KafkaError) else str(cause)
