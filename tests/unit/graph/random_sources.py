"""Random sources and sinks, for round trips."""

from dataclasses import fields
from typing import Any, get_type_hints

from hypothesis import strategies as st

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.connectors import (
    CaptureConnector,
    Connector,
    FilesConnector,
    HTTPConnector,
    IcebergConnector,
    KafkaConnector,
    KinesisConnector,
    PubSubConnector,
    RedisConnector,
    S3Connector,
    StreamStart,
    TableConnector,
    WebhookConnector,
)
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SampleSpec, SinkSpec, SourceSpec
from caraway.graph.systems import (
    AzureSystem,
    BigQuerySystem,
    CSVFormat,
    FilesSystem,
    GCSSystem,
    HTTPSystem,
    IcebergSystem,
    KafkaSystem,
    KinesisSystem,
    MongoSystem,
    MySQLSystem,
    PostgresSystem,
    PubSubSystem,
    RedisSystem,
    RedshiftSystem,
    RegisteredSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
    Secretish,
    SecretRef,
    SnowflakeSystem,
    System,
    SystemKind,
)

names = st.text(max_size=6)
columns = st.lists(names, max_size=3).map(tuple)
micros = st.integers(min_value=-(2**63), max_value=2**63 - 1)
pairs = st.lists(st.tuples(names, names), max_size=2).map(tuple)
secretish: st.SearchStrategy[Secretish] = names | st.builds(
    SecretRef, arn=names, role_arn=st.none() | names, path=columns
)


SETTINGS: dict[object, st.SearchStrategy[Any]] = {
    str: names,
    int: micros,
    str | None: st.none() | names,
    Secretish: secretish,
    Secretish | None: st.none() | secretish,
}


def _system(kind: SystemKind, system: type[System]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(system)
    settings = {each.name: SETTINGS[hints[each.name]] for each in fields(system)}
    return st.builds(system, **settings) | st.builds(RegisteredSystem, kind=st.just(kind), name=names)


_TABLES: dict[SystemKind, type[System]] = {
    SystemKind.POSTGRES: PostgresSystem,
    SystemKind.MYSQL: MySQLSystem,
    SystemKind.SNOWFLAKE: SnowflakeSystem,
    SystemKind.BIGQUERY: BigQuerySystem,
    SystemKind.REDSHIFT: RedshiftSystem,
    SystemKind.MONGO: MongoSystem,
}

_FILES: dict[SystemKind, type[System]] = {
    SystemKind.FILES: FilesSystem,
    SystemKind.GCS: GCSSystem,
    SystemKind.AZURE: AzureSystem,
}

registries = st.builds(
    SchemaRegistry,
    format=st.sampled_from(RegistryFormat),
    registry=names,
    url=names,
    username=st.none() | secretish,
    password=st.none() | secretish,
    token=st.none() | secretish,
)

connectors: st.SearchStrategy[Connector] = st.one_of(
    st.builds(WebhookConnector, name=names, endpoint=names, retention_us=micros),
    st.builds(
        KafkaConnector,
        system=_system(SystemKind.KAFKA, KafkaSystem),
        topic=names,
        format=names | registries,
    ),
    st.builds(
        S3Connector,
        system=_system(SystemKind.S3, S3System),
        bucket=names,
        prefix=names,
        suffix=st.none() | names,
        format=names | st.builds(CSVFormat, delimiter=names, headers=st.none() | columns),
        presorted=st.booleans(),
        spread_us=st.none() | micros,
    ),
    st.builds(
        FilesConnector,
        system=st.one_of(*(_system(kind, system) for kind, system in _FILES.items())),
        container=names,
        prefix=names,
        suffix=st.none() | names,
        format=names | st.builds(CSVFormat, delimiter=names, headers=st.none() | columns),
        presorted=st.booleans(),
        spread_us=st.none() | micros,
    ),
    st.builds(
        TableConnector,
        system=st.one_of(*(_system(kind, system) for kind, system in _TABLES.items())),
        table=names,
        cursor=st.none() | names,
    ),
    st.builds(
        CaptureConnector,
        system=_system(SystemKind.POSTGRES, PostgresSystem) | _system(SystemKind.MYSQL, MySQLSystem),
        table=names,
    ),
    st.builds(
        KinesisConnector,
        system=_system(SystemKind.KINESIS, KinesisSystem),
        stream_arn=names,
        start=st.sampled_from(StreamStart) | micros,
        format=names,
    ),
    st.builds(PubSubConnector, system=_system(SystemKind.PUBSUB, PubSubSystem), topic=names, format=names),
    st.builds(IcebergConnector, system=_system(SystemKind.ICEBERG, IcebergSystem), table=names),
    st.builds(
        RedisConnector,
        system=_system(SystemKind.REDIS, RedisSystem),
        prefix=names,
        format=names,
        ttl_us=st.none() | micros,
    ),
    st.builds(
        HTTPConnector,
        system=_system(SystemKind.HTTP, HTTPSystem),
        endpoint=names,
        limit=st.none() | micros,
        headers=pairs,
    ),
)

functions = st.builds(PythonFunction, name=names, source_code=names, pickled=st.binary(max_size=4), includes=columns)


def source_specs(
    dtypes: st.SearchStrategy[DataType],
    constants: st.SearchStrategy[object],
    expressions: st.SearchStrategy[Node],
) -> st.SearchStrategy[SourceSpec]:
    """Return a strategy of sources of all kinds, sensible or not."""
    computed = st.builds(
        Computed, by=expressions | functions, schema=st.lists(st.tuples(names, dtypes), max_size=2).map(tuple)
    )
    made = (
        st.builds(Ref, path=columns)
        | st.builds(Constant, value=constants.filter(lambda value: not isinstance(value, tuple)), dtype=dtypes)
        | computed
    )
    return st.builds(
        SourceSpec,
        connector=connectors,
        cdc=st.sampled_from(Cdc),
        disorder_us=micros,
        every_us=st.none() | micros,
        since_us=st.none() | micros,
        until_us=st.none() | micros,
        env=columns,
        preproc=st.lists(st.tuples(names, made), max_size=2).map(tuple),
        where=st.none() | computed,
        bounded=st.booleans(),
        idleness_us=st.none() | micros,
        sample=st.none() | st.builds(SampleSpec, rate=st.floats(0, 1), using=columns),
    )


sink_specs = st.builds(
    SinkSpec,
    connector=connectors,
    cdc=st.none() | st.sampled_from(Cdc),
    every_us=st.none() | micros,
    how=st.none() | names,
    create=st.booleans(),
    renames=pairs,
    since_us=st.none() | micros,
    until_us=st.none() | micros,
    env=columns,
)
