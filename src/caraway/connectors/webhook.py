"""Webhooks: rows that clients post to an endpoint."""

from dataclasses import dataclass

from caraway.dtypes.durations import parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A place that takes rows over HTTP, with any number of endpoints.

    `retention` is how long rows stay readable for datasets that are defined later.
    """

    name: str
    retention: str = "7d"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionError(f"Webhook: the name is a str that isn't empty, not {self.name!r}")
        try:
            parse_duration(self.retention)
        except (DefinitionError, DefinitionTypeError) as error:
            raise DefinitionError(f"webhook {self.name}: retention: {error}") from None

    def endpoint(self, endpoint: str) -> "WebhookEndpoint":
        """Return the endpoint of this name.

        Raises:
            DefinitionError: The name is no string or empty.
        """
        if not isinstance(endpoint, str) or not endpoint:  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionError(
                f"webhook {self.name}: the name of an endpoint is a str that isn't empty, not {endpoint!r}"
            )
        return WebhookEndpoint(data_source=self, endpoint=endpoint)

    def identifier(self) -> str:
        """Name the webhook for people."""
        return f"[Webhook: {self.name}]"


@dataclass(frozen=True, kw_only=True)
class WebhookEndpoint:
    """One endpoint of a webhook."""

    data_source: Webhook
    endpoint: str

    def identifier(self) -> str:
        """Name the endpoint for people."""
        return f"{self.data_source.identifier()}(endpoint={self.endpoint})"
