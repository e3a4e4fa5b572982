"""`@source`: feeds a dataset from a connector."""

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource, duration_us
from caraway.connectors.preproc import Eval, PreProcValue, Ref, WhereValue
from caraway.connectors.sampling import Sample, checked_rate
from caraway.datasets.dataset import SOURCE_FIELD, Dataset
from caraway.errors import DefinitionAttributeError, DefinitionError, DefinitionTypeError
from caraway.graph.envs import EnvSelector, selector

D = TypeVar("D")


def source(
    conn: DataConnector,
    disorder: str,
    cdc: Literal["append", "upsert", "debezium", "native"],
    every: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    env: EnvSelector = None,
    preproc: Mapping[str, PreProcValue] | None = None,
    bounded: bool = False,
    idleness: str | None = None,
    where: WhereValue | None = None,
    sample: float | Sample | None = None,
    *,
    max_future: str | None = None,
    id: str | Sequence[str] | None = None,
) -> Callable[[D], D]:
    """Feed a dataset from a connector; stands above or below `@dataset`.

    Args:
        conn: The connector to read: `Webhook(name="web").endpoint("clicks")`, `kafka.topic("clicks")`, ...
        disorder: How late a row may come and still correct all that depends on it, a duration. Later rows aren't
            dropped, but joins, deduplication and changes of tables may have forgotten what they would correct.
        cdc: "append": each row is an event (keyless datasets); "upsert": it replaces the one with its key (keyed
            ones); "debezium": rows are envelopes of changes; "native": the table format's own changes.
        every: The interval of polling tables and S3, a duration, by default 30 minutes. Others aren't polled.
        since: Only rows whose timestamp isn't before this; UTC if it has no zone.
        until: Only rows whose timestamp is before this.
        env: The environments in which the source is read; all by default.
        preproc: Fields that the payload lacks, each made by `ref(...)`, `eval(...)`, or a constant.
        bounded: The source ends; needs `idleness`.
        idleness: The time without rows after which a bounded source is closed for good.
        where: The condition that rows must meet: a function from frame to booleans, or `eval(...)`.
        sample: The share of the rows that is taken, from 0.0 to 1.0, or `Sample(rate, using=[...])`.
        max_future: Rows whose timestamp is further ahead of the clock are refused, a duration; by default all are
            taken, and the answer to a log request warns of those that are ahead.
        id: The fields that identify an event, for cdc="append": pipelines take a row that comes again, with the same
            identity and timestamp, once, as if `dedup(by=id)` were their first step. All sources of a dataset have
            the same.

    Raises:
        DefinitionTypeError: `conn` can't be read, or an argument is of a wrong type.
        DefinitionError: An argument has a wrong value.
        DefinitionAttributeError: Only one of `bounded` and `idleness` is given.
    """
    connector = copy.deepcopy(_readable(conn))
    label = f"source {connector.identifier()}"
    duration_us(label, "disorder", disorder)
    connector.disorder, connector.cdc = disorder, cdc
    if every is not None:
        duration_us(label, "every", every)
    connector.every = every
    if max_future is not None:
        duration_us(label, "max_future", max_future)
    connector.max_future = max_future
    connector.id = _checked_id(label, cdc, id)
    connector.since, connector.until = checked_bounds(label, since, until)
    selector(env, label)
    connector.envs = env
    connector.pre_proc = _checked_preproc(label, connector, preproc)
    connector.bounded, connector.idleness = bounded, _checked_idleness(label, bounded=bounded, idleness=idleness)
    if where is not None and not isinstance(where, Eval) and not callable(where):
        raise DefinitionTypeError(
            f"{label}: where is a function or eval(...), not {type(where).__name__} {where}; "
            "put an expression into eval(...)"
        )
    connector.where = where
    connector.sample = _checked_sample(label, sample, preproc or {})
    connector.check_source(label)

    def decorate(found: D) -> D:
        if not isinstance(found, (Dataset, type)):
            raise DefinitionTypeError(f"@source goes onto a dataset, not {type(found).__name__} {found!r}")
        # Each use gets its own copy, so that changes to one dataset's source don't reach another's.
        setattr(found, SOURCE_FIELD, [*vars(found).get(SOURCE_FIELD, []), copy.copy(connector)])
        if isinstance(found, Dataset):
            found.identify_rows()
        return found

    return decorate


def _readable(conn: object) -> DataConnector:
    if isinstance(conn, DataSource):
        raise DefinitionTypeError(f"source: {conn.identifier()} lacks {conn.required_fields}")
    if not isinstance(conn, DataConnector):
        raise DefinitionTypeError(
            f'source takes what has rows, such as Webhook(name="web").endpoint("clicks"), not {type(conn).__name__}'
        )
    if not conn.readable:
        raise DefinitionTypeError(f"source: {conn.identifier()} only takes rows: it goes into @sink")
    return conn


def checked_bounds(
    label: str, since: datetime | None, until: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """Check since and until, and convert them to UTC.

    Raises:
        DefinitionTypeError: A bound is no datetime.
        DefinitionError: since is after until.
    """
    for name, value in (("since", since), ("until", until)):
        if value is not None and not isinstance(value, datetime):
            raise DefinitionTypeError(f"{label}: {name} is a datetime, not {type(value).__name__} {value!r}")
    since, until = _in_utc(since), _in_utc(until)
    if since is not None and until is not None and since > until:
        raise DefinitionError(f"{label}: since {since.isoformat()} is after until {until.isoformat()}")
    return since, until


def _in_utc(at: datetime | None) -> datetime | None:
    if at is None:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _checked_idleness(label: str, *, bounded: object, idleness: str | None) -> str | None:
    if bounded and idleness is None:
        raise DefinitionAttributeError(f"{label}: bounded=True needs idleness, the time without rows that ends it")
    if idleness is None:
        return None
    if not bounded:
        raise DefinitionAttributeError(f"{label}: idleness={idleness!r} is only for bounded=True")
    duration_us(label, "idleness", idleness)
    return idleness


def _checked_id(label: str, cdc: str, names: object) -> tuple[str, ...]:
    """Return the fields that identify an event; none if the source doesn't name any."""
    if names is None:
        return ()
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, (list, tuple)) or not found or not all(isinstance(name, str) for name in found):
        raise DefinitionTypeError(f"{label}: id is the name of a field, or a list of names, not {names!r}")
    if cdc != "append":
        raise DefinitionError(
            f'{label}: id is for cdc="append"; with cdc="{cdc}" the key identifies a row, and one that comes again '
            "replaces it"
        )
    return tuple(dict.fromkeys(found))


def _checked_preproc(
    label: str, connector: DataConnector, preproc: Mapping[str, PreProcValue] | None
) -> dict[str, PreProcValue] | None:
    if preproc is None:
        return None
    if not isinstance(preproc, Mapping):
        raise DefinitionTypeError(f"{label}: preproc is a dict from field to value, not {preproc!r}")
    for name, value in preproc.items():
        if isinstance(value, Ref) and value.is_nested() and not connector.has_structs:
            raise DefinitionError(
                f"{label}: preproc of {name}: {value!r} leads into a struct, which is possible for Kafka (not in CSV), "
                "for S3, Kinesis and PubSub in JSON, and for Files, GCS and Azure in JSON and Avro"
            )
    return dict(preproc)


def _checked_sample(label: str, sample: object, preproc: Mapping[str, PreProcValue]) -> float | Sample | None:
    if sample is None:
        return None
    if isinstance(sample, Sample):
        if made := [name for name in sample.using if name in preproc]:
            raise DefinitionError(
                f"{label}: sample is by {', '.join(made)}, which preproc makes; use columns of the payload"
            )
        return sample
    if not isinstance(sample, float):
        raise DefinitionError(
            f"{label}: sample is a float from 0.0 to 1.0 or Sample(rate, using=[...]), "
            f"not {type(sample).__name__} {sample!r}"
        )
    return checked_rate(f"{label}: sample", sample)
