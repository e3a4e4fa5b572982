"""Webhooks: rows that clients post to an endpoint."""

from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource, duration_us, named
from caraway.graph.connectors import WebhookConnector as WebhookSpec
from caraway.graph.systems import WEBHOOK


class Webhook(DataSource):
    """A part of the server that accepts rows over HTTP, with any number of endpoints.

    `retention` is how long rows can be read by datasets that are defined later.
    """

    retention: str = "7d"

    kind: ClassVar = WEBHOOK
    required_fields: ClassVar = 'its endpoint: use .endpoint("...")'

    def _check(self) -> None:
        duration_us(f"webhook {self.name}", "retention", self.retention)

    def endpoint(self, endpoint: str) -> "WebhookConnector":
        """Return the endpoint of this name.

        Raises:
            DefinitionError: The name is empty.
            DefinitionTypeError: The name is no text.
        """
        return WebhookConnector(self, endpoint)


class WebhookConnector(DataConnector):
    """One endpoint of a webhook."""

    data_source: Webhook

    def __init__(self, data_source: Webhook, endpoint: str) -> None:
        super().__init__(data_source)
        self.endpoint = named(f"webhook {data_source.name}", "endpoint", endpoint)

    def _inside(self) -> str:
        return f"endpoint={self.endpoint}"

    def spec(self) -> WebhookSpec:
        """Return the endpoint as a value."""
        webhook = self.data_source
        retention_us = duration_us(f"webhook {webhook.name}", "retention", webhook.retention)
        return WebhookSpec(name=webhook.name, endpoint=self.endpoint, retention_us=retention_us)
