"""`@source`: where the rows of a dataset come from."""

from collections.abc import Callable
from typing import Any, TypeVar

from caraway.connectors.webhook import Webhook, WebhookEndpoint
from caraway.datasets.dataset import SOURCE_FIELD, Dataset
from caraway.dtypes.durations import parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.envs import EnvSelector, selector
from caraway.graph.sources import Cdc, SourceSpec

D = TypeVar("D")

_INSTEAD = {
    "every": "a webhook isn't polled; leave it out",
    "since": "filter in a pipeline",
    "until": "filter in a pipeline",
    "preproc": "shape the rows before they are logged, or assign in a pipeline",
    "bounded": "leave it out",
    "idleness": "leave it out",
    "where": "filter in a pipeline",
    "sample": "filter in a pipeline",
}
_AVAILABLE_CDC = (Cdc.APPEND, Cdc.UPSERT)


def source(
    conn: WebhookEndpoint,
    disorder: str,
    cdc: str,
    *,
    env: EnvSelector = None,
    **options: Any,  # noqa: ANN401 (refused here)
) -> Callable[[D], D]:
    """Feed a dataset from a connector; stands above or below `@dataset`.

    Args:
        conn: An endpoint: `Webhook(name="web").endpoint("clicks")`.
        disorder: How late rows may come, a duration: after a row of time t none older than t - disorder.
        cdc: "append": each row is an event (keyless datasets); "upsert": it replaces the one with its key (keyed ones).
        env: In which environments the source is read; all by default.
        options: Further parameters of the API, which aren't available yet.

    Raises:
        DefinitionTypeError: `conn` is no endpoint.
        DefinitionError: Another argument is wrong or not available yet.
    """
    _check_connector(conn)
    where = f"source {conn.identifier()}"
    for name, value in options.items():
        if name not in _INSTEAD:
            raise DefinitionTypeError(f"{where}: unknown parameter {name}; parameters: disorder, cdc, env")
        if value is not None and value is not False:
            raise DefinitionError(f"{where}: {name}= isn't available yet; {_INSTEAD[name]}")
    if cdc not in tuple(Cdc):
        raise DefinitionError(f"{where}: cdc is one of {', '.join(Cdc)}, not {cdc!r}")
    if cdc not in _AVAILABLE_CDC:
        raise DefinitionError(f'{where}: cdc="{cdc}" isn\'t available yet; use "append" or "upsert"')
    try:
        disorder_us = parse_duration(disorder)
    except (DefinitionError, DefinitionTypeError) as error:
        raise DefinitionError(f"{where}: disorder: {error}") from None
    webhook = conn.data_source
    spec = SourceSpec(
        connector=WebhookConnector(
            name=webhook.name, endpoint=conn.endpoint, retention_us=parse_duration(webhook.retention)
        ),
        disorder_us=disorder_us,
        cdc=Cdc(cdc),
        env=selector(env, where),
    )

    def decorate(found: D) -> D:
        if isinstance(found, Dataset):
            found.add_source(spec)
        elif isinstance(found, type):
            setattr(found, SOURCE_FIELD, (*getattr(found, SOURCE_FIELD, ()), spec))
        else:
            raise DefinitionTypeError(f"@source goes onto a dataset, not {type(found).__name__} {found!r}")
        return found

    return decorate


def _check_connector(conn: object) -> None:
    if isinstance(conn, Webhook):
        raise DefinitionTypeError(f'source: webhook {conn.name} lacks its endpoint: use .endpoint("...")')
    if not isinstance(conn, WebhookEndpoint):
        raise DefinitionTypeError(
            f'source takes the endpoint of a webhook, Webhook(name="web").endpoint("clicks"), not {type(conn).__name__}'
        )
