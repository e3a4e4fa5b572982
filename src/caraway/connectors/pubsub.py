"""PubSub: topics of Google Cloud."""

from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource, named
from caraway.connectors.tables import stored_key
from caraway.errors import DefinitionError
from caraway.graph.connectors import PubSubConnector as PubSubSpec
from caraway.graph.connectors import PubSubSystem, SystemKind
from caraway.integrations.aws import Secret


class PubSub(DataSource):
    """A project; `service_account_key` is the JSON credential, read, or a secret."""

    project_id: str
    service_account_key: dict[str, str] | Secret

    kind: ClassVar = SystemKind.PUBSUB
    required_fields: ClassVar = 'its topic: use .topic("...", format="json")'

    @staticmethod
    def get(name: str) -> "PubSub":
        """Return a reference to a project that was registered on the server."""
        return PubSub._reference(name)

    def topic(self, topic_id: str, format: str) -> "PubSubConnector":
        """Return the topic of this name; the format is "json".

        Raises:
            DefinitionError: Another format, or the name is empty.
            DefinitionTypeError: The name is no text.
        """
        return PubSubConnector(self, topic_id, format)


class PubSubConnector(DataConnector):
    """A topic. Messages may come twice: `dedup` in a pipeline."""

    data_source: PubSub

    def __init__(self, data_source: PubSub, topic_id: str, format: str) -> None:
        super().__init__(data_source)
        where = f"PubSub {data_source.name}"
        self.topic_id = named(where, "topic_id", topic_id)
        if format != "json":
            raise DefinitionError(f'{where}, topic {topic_id}: the format is "json", not {format!r}')
        self.format = format

    def _inside(self) -> str:
        return f"topic={self.topic_id}, format={self.format}"

    def spec(self) -> PubSubSpec:
        """Return the topic as a value."""
        pubsub = self.data_source
        system = pubsub._registered_system() or PubSubSystem(  # noqa: SLF001 (a part of it)
            name=pubsub.name, project_id=pubsub.project_id, service_account_key=stored_key(pubsub.service_account_key)
        )
        return PubSubSpec(system=system, topic=self.topic_id, format=self.format)
