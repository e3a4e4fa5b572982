"""The endpoints of webhooks, each with the datasets that it feeds."""

from collections.abc import Mapping
from dataclasses import dataclass

from caraway.compute.rows.calls import FunctionCaller, refuse_functions
from caraway.dataplane.ingest.targets import Target
from caraway.errors import UnknownEntityError, meant, shortened
from caraway.graph.connectors import WebhookConnector
from caraway.graph.plan.model import GraphPlan


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a webhook, or a source of another kind, and the datasets that it feeds."""

    webhook: str
    name: str
    targets: tuple[Target, ...]

    @property
    def is_plain(self) -> bool:
        """True if rows are only cast and checked."""
        return all(target.is_plain for target in self.targets)

    @property
    def is_quick(self) -> bool:
        """True if few rows take so little time that the event loop may process them."""
        return all(target.is_plain and not target.has_patterns for target in self.targets)

    @property
    def is_bounded(self) -> bool:
        """True if the source of a dataset ends when no rows come for some time."""
        return any(target.plan.source.bounded for target in self.targets)

    def origin(self, _row: int = 0) -> Mapping[str, object]:
        """Return the fields of dead letters that describe where rows came from."""
        return {"webhook": self.webhook, "endpoint": self.name}


class Endpoints:
    """All endpoints of a graph."""

    def __init__(self, plan: GraphPlan, call: FunctionCaller = refuse_functions) -> None:
        """Compile the ingests of `plan`; `call` runs users' functions."""
        targets: dict[tuple[str, str], list[Target]] = {}
        self._sources: list[Endpoint] = []
        for ingest in plan.ingests:
            connector = ingest.source.connector
            if isinstance(connector, WebhookConnector):
                targets.setdefault((connector.name, connector.endpoint), []).append(Target(ingest, call))
            else:
                target = Target(ingest, call)
                self._sources.append(Endpoint(target.system, target.source, (target,)))
        self._endpoints = {key: Endpoint(*key, tuple(feeds)) for key, feeds in targets.items()}

    def of_source(self, source: str) -> list[Endpoint]:
        """Return the endpoints of a source that is no webhook: one for each dataset that it feeds."""
        return [endpoint for endpoint in self._sources if endpoint.name == source]

    def find(self, webhook: str, endpoint: str) -> Endpoint:
        """Return an endpoint.

        Raises:
            UnknownEntityError: There is no such endpoint; the text lists those that exist.
        """
        found = self._endpoints.get((webhook, endpoint))
        if found is not None:
            return found
        webhooks = sorted({name for name, _ in self._endpoints})
        if not webhooks:
            raise UnknownEntityError(
                f"there is no webhook {shortened(webhook)!r}: no dataset has a webhook source yet. "
                "Commit one with @source(webhook.endpoint(...))"
            )
        if webhook not in webhooks:
            raise UnknownEntityError(
                f"there is no webhook {shortened(webhook)!r}{meant(webhook, webhooks)}; webhooks: {', '.join(webhooks)}"
            )
        names = sorted(name for of, name in self._endpoints if of == webhook)
        raise UnknownEntityError(
            f"webhook {webhook!r} has no endpoint {shortened(endpoint)!r}{meant(endpoint, names)}; "
            f"endpoints: {', '.join(names)}"
        )
