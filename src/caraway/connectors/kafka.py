"""Kafka and all brokers that speak its protocol."""

from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import ExternalSource, named
from caraway.connectors.registries import Avro, Protobuf
from caraway.connectors.settings import Secretish, one_of
from caraway.errors import CommitError, DefinitionError
from caraway.graph.connectors import KafkaConnector as KafkaSpec
from caraway.graph.systems import KafkaSystem

SECURITY_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")


class Kafka(ExternalSource):
    """Brokers. `sasl_mechanism` is required with every protocol, and means nothing for PLAINTEXT."""

    bootstrap_servers: str
    security_protocol: str
    sasl_mechanism: str
    sasl_plain_username: Secretish | None = None
    sasl_plain_password: Secretish | None = None

    spec_class: ClassVar = KafkaSystem
    renamed: ClassVar = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
    required_fields: ClassVar = 'its topic: use .topic("...")'

    def _check(self) -> None:
        one_of(f"Kafka {self.name}: security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        one_of(f"Kafka {self.name}: sasl_mechanism", self.sasl_mechanism, SASL_MECHANISMS)

    def topic(self, topic: str, format: "str | Avro | Protobuf | None" = "json") -> "KafkaConnector":
        """Return the topic of this name; its records are in "json", `Avro(...)` or `Protobuf(...)`.

        Raises:
            DefinitionError: The name is empty.
            DefinitionTypeError: The name is no text.
        """
        return KafkaConnector(self, topic, format)


class KafkaConnector(DataConnector):
    """A topic."""

    data_source: Kafka
    writable = True
    sends_changes: ClassVar = True

    def __init__(
        self,
        data_source: Kafka,
        topic: str,
        format: "str | Avro | Protobuf | None" = "json",
    ) -> None:
        super().__init__(data_source)
        self.topic = named(f"Kafka {data_source.name}", "topic", topic)
        self.format = format
        self.has_structs = format in (None, "json") or isinstance(format, (Avro, Protobuf))

    def _inside(self) -> str:
        shown = type(self.format).__name__ if isinstance(self.format, (Avro, Protobuf)) else self.format or "json"
        return f"topic={self.topic}, format={shown}"

    def check_sink(self, label: str) -> None:
        """Check that changes are sent in JSON."""
        if self.format != "json":
            raise DefinitionError(f'{label}: the format is "json", not {self.format!r}')

    def spec(self) -> KafkaSpec:
        """Return the topic as a value.

        Raises:
            CommitError: The format is unknown.
        """
        system = self.data_source.stored_system()
        match self.format:
            case Avro() | Protobuf():
                return KafkaSpec(system=system, topic=self.topic, format=self.format.spec())
            case None | "json":
                return KafkaSpec(system=system, topic=self.topic)
            case _:
                raise CommitError(
                    f'{self.identifier()}: the format is "json", Avro(...) or Protobuf(...), not {self.format!r}'
                )
