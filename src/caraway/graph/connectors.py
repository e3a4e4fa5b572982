"""Connectors: a table, topic, path or endpoint of an external system, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConnector:
    """Rows that clients post to `endpoint` of the webhook `name`, readable for `retention_us`."""

    name: str
    endpoint: str
    retention_us: int


Connector = WebhookConnector
