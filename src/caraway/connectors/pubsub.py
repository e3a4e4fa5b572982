"""PubSub: topics of Google Cloud."""

from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import ExternalSource, named
from caraway.errors import DefinitionError
from caraway.graph.connectors import PubSubConnector as PubSubSpec
from caraway.graph.systems import PubSubSystem
from caraway.integrations.aws import Secret


class PubSub(ExternalSource):
    """A project; `service_account_key` is the JSON credential, read, or a secret."""

    project_id: str
    service_account_key: dict[str, str] | Secret

    spec_class: ClassVar = PubSubSystem
    required_fields: ClassVar = 'its topic: use .topic("...", format="json")'

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
    has_structs = True

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
        system = self.data_source.stored_system()
        return PubSubSpec(system=system, topic=self.topic_id, format=self.format)
