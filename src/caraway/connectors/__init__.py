"""Where rows come from."""

from caraway.connectors.source import source
from caraway.connectors.webhook import Webhook, WebhookEndpoint

__all__ = ["Webhook", "WebhookEndpoint", "source"]
