"""Brokers of users, from which sources read and to which sinks write: how to sign in, and how errors name them."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from caraway.graph.systems import KafkaSystem, Secretish


def external_settings(system: KafkaSystem, resolve: Callable[[Secretish], str], ca_file: str = "") -> dict[str, Any]:
    """Return the settings of each client of a user's brokers.

    Args:
        system: The brokers.
        resolve: Returns the values of secrets; raises `UnknownEntityError` or `UnavailableError`.
        ca_file: A file in PEM with the authorities that sign the brokers' certificates; empty for the system's own.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": system.bootstrap_servers,
        "security.protocol": system.security_protocol,
        "log.connection.close": False,
    }
    if system.security_protocol != "PLAINTEXT":
        settings["sasl.mechanism"] = system.sasl_mechanism
    if system.security_protocol == "SASL_SSL" and ca_file:
        settings["ssl.ca.location"] = ca_file
    if system.username is not None and system.password is not None:
        settings |= {"sasl.username": resolve(system.username), "sasl.password": resolve(system.password)}
    return settings


# The remedies of errors of the connection, by their codes.
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
