"""`@sink`: writes the rows of a dataset to a connector."""

import copy
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource, duration_us
from caraway.connectors.settings import is_text_dict
from caraway.connectors.source import checked_bounds
from caraway.datasets.dataset import SINK_FIELD, Dataset
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.envs import EnvSelector, selector

D = TypeVar("D")

INCREMENTAL = "incremental"


class SnapshotData:
    """A sink that writes the whole dataset from time to time, and keeps the last `num_retain` copies.

    No connector supports it yet.
    """

    def __init__(self, marker: str, num_retain: int) -> None:
        self.marker = marker
        self.num_retain = num_retain

    def __repr__(self) -> str:
        return f"SnapshotData(marker={self.marker!r}, num_retain={self.num_retain!r})"


def sink(
    conn: DataConnector,
    cdc: Literal["debezium"] | None = None,
    every: str | None = None,
    how: Literal["incremental"] | SnapshotData | None = None,
    renames: Mapping[str, str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    env: EnvSelector = None,
) -> Callable[[D], D]:
    """Write the rows of a dataset, which pipelines fill, to a connector; stands above or below `@dataset`.

    Args:
        conn: A topic of Kafka in JSON, a path of an HTTP server, a prefix of S3 in the format "delta", a table of
            Iceberg, Snowflake or Postgres, or keys of Redis.
        cdc: "debezium" for Kafka and HTTP; none for the others.
        every: The interval of writing, a duration; not for Kafka and HTTP. The default of S3, Iceberg and Snowflake is
            an hour; the others get changes as they come.
        how: "incremental", which all but Kafka and HTTP need.
        renames: Names of columns, by field; not for Kafka and HTTP.
        since: Only rows whose timestamp isn't before this; not for Kafka and HTTP.
        until: Only rows whose timestamp is before this; not for Kafka and HTTP.
        env: The environments in which the sink is written; all by default.

    Raises:
        DefinitionError: The connector can't be written to, or doesn't take an argument.
        DefinitionTypeError: since or until is no datetime.
    """
    connector = copy.deepcopy(_writable(conn))
    label = f"sink {connector.identifier()}"
    given = {"every": every, "renames": renames, "since": since, "until": until}
    if connector.sends_changes:
        _check_changes(label, connector, cdc, how, given)
    else:
        _check_rows(label, cdc, how)
        connector.check_sink(label)
    connector.create = not connector.sends_changes
    if every is not None:
        duration_us(label, "every", every)
    selector(env, label)
    connector.cdc, connector.every, connector.how, connector.envs = cdc, every, how, env
    connector.renames = _checked_renames(label, renames)
    connector.since, connector.until = checked_bounds(label, since, until)

    def decorate(found: D) -> D:
        if not isinstance(found, (Dataset, type)):
            raise DefinitionTypeError(f"@sink goes onto a dataset, not {type(found).__name__} {found!r}")
        # Each use gets its own copy, so that changes to one dataset's sink don't reach another's.
        setattr(found, SINK_FIELD, [*vars(found).get(SINK_FIELD, []), copy.copy(connector)])
        return found

    return decorate


def _writable(conn: object) -> DataConnector:
    if isinstance(conn, DataSource):
        raise DefinitionError(f"sink: {conn.identifier()} lacks {conn.required_fields}")
    if isinstance(conn, DataConnector) and conn.writable:
        return conn
    shown = conn.identifier() if isinstance(conn, DataConnector) else f"{type(conn).__name__} {conn!r}"
    raise DefinitionError(
        f"sink: {shown} can't be written to; sinks are topics of Kafka, paths of HTTP, S3, keys of Redis, "
        "and tables of Iceberg, Snowflake and Postgres"
    )


def _check_changes(
    label: str,
    connector: DataConnector,
    cdc: str | None,
    how: str | SnapshotData | None,
    given: Mapping[str, Any],
) -> None:
    if cdc != "debezium":
        raise DefinitionError(f'{label}: cdc is "debezium", not {cdc!r}')
    connector.check_sink(label)
    if how not in (None, INCREMENTAL):
        raise DefinitionError(f'{label}: how is "{INCREMENTAL}" or left out, not {how!r}')
    for name, value in given.items():
        # The default of `renames` in the API is an empty dict, so this counts as left out.
        if value is not None and value != {}:
            raise DefinitionError(f"{label}: {name}= is for tables; changes are sent as they come: leave it out")


def _check_rows(label: str, cdc: str | None, how: str | SnapshotData | None) -> None:
    if cdc is not None:
        raise DefinitionError(f"{label}: cdc isn't for tables, which get the rows themselves: leave {cdc!r} out")
    if how != INCREMENTAL:
        raise DefinitionError(f'{label}: how has to be "{INCREMENTAL}", not {how!r}')


def _checked_renames(label: str, renames: Mapping[str, str] | None) -> dict[str, str]:
    if renames is None:
        return {}
    if not is_text_dict(renames):
        raise DefinitionError(f"{label}: renames is a dict from field to column, not {renames!r}")
    return dict(renames)
