"""Sources, sinks and their connectors to protobuf and back."""

from dataclasses import fields, replace
from typing import Any, cast

from caraway.errors import InvalidInputError
from caraway.graph.connectors import (
    BigQuerySystem,
    Connector,
    CSVFormat,
    HTTPConnector,
    HTTPSystem,
    KafkaConnector,
    KafkaSystem,
    KinesisConnector,
    KinesisSystem,
    MongoSystem,
    MySQLSystem,
    PostgresSystem,
    PubSubConnector,
    PubSubSystem,
    RedshiftSystem,
    RegisteredSystem,
    RegistryFormat,
    S3Connector,
    S3System,
    SchemaRegistry,
    Secretish,
    SecretRef,
    SnowflakeSystem,
    StreamStart,
    System,
    SystemKind,
    TableConnector,
    WebhookConnector,
    system_kind,
)
from caraway.graph.functions import PythonFunction
from caraway.graph.pb.caraway.v1 import connectors_pb2 as pb
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SampleSpec, SinkSpec, SourceSpec
from caraway.graph.wire.expressions import decode_expr, encode_expr
from caraway.graph.wire.types import decode_type, decode_value, encode_type, encode_value

_SYSTEMS: dict[SystemKind, type[System]] = {
    SystemKind.KAFKA: KafkaSystem,
    SystemKind.S3: S3System,
    SystemKind.POSTGRES: PostgresSystem,
    SystemKind.MYSQL: MySQLSystem,
    SystemKind.SNOWFLAKE: SnowflakeSystem,
    SystemKind.BIGQUERY: BigQuerySystem,
    SystemKind.REDSHIFT: RedshiftSystem,
    SystemKind.MONGO: MongoSystem,
    SystemKind.KINESIS: KinesisSystem,
    SystemKind.PUBSUB: PubSubSystem,
    SystemKind.HTTP: HTTPSystem,
}
# Settings of a system that are numbers; all others are text or secrets.
_NUMBERS = frozenset({"port"})


def source_to_wire(spec: SourceSpec) -> pb.Source:
    """Encode a source as its message."""
    return pb.Source(
        connector=_encode_connector(spec.connector),
        cdc=spec.cdc,
        disorder_us=spec.disorder_us,
        every_us=spec.every_us,
        since_us=spec.since_us,
        until_us=spec.until_us,
        env=spec.env,
        preproc=[_encode_made(name, made) for name, made in spec.preproc],
        where=None if spec.where is None else _encode_computed(spec.where),
        bounded=spec.bounded,
        idleness_us=spec.idleness_us,
        sample=None if spec.sample is None else pb.Source.Sample(rate=spec.sample.rate, using=spec.sample.using),
    )


def source_from_wire(message: pb.Source) -> SourceSpec:
    """Decode a source from its message.

    Raises:
        InvalidInputError: The message has something that this version doesn't know.
        ValueError: The message has a mode that this version doesn't know.
    """
    return SourceSpec(
        connector=_decode_connector(message.connector),
        cdc=Cdc(message.cdc),
        disorder_us=message.disorder_us,
        every_us=_given(message, "every_us"),
        since_us=_given(message, "since_us"),
        until_us=_given(message, "until_us"),
        env=tuple(message.env),
        preproc=tuple(_decode_made(made) for made in message.preproc),
        where=_decode_computed(message.where) if message.HasField("where") else None,
        bounded=message.bounded,
        idleness_us=_given(message, "idleness_us"),
        sample=(
            SampleSpec(rate=message.sample.rate, using=tuple(message.sample.using))
            if message.HasField("sample")
            else None
        ),
    )


def sink_to_wire(spec: SinkSpec) -> pb.Sink:
    """Encode a sink as its message."""
    return pb.Sink(
        connector=_encode_connector(spec.connector),
        cdc=spec.cdc or "",
        every_us=spec.every_us,
        how=spec.how,
        create=spec.create,
        renames=[pb.Sink.Rename(field=field, column=column) for field, column in spec.renames],
        since_us=spec.since_us,
        until_us=spec.until_us,
        env=spec.env,
    )


def sink_from_wire(message: pb.Sink) -> SinkSpec:
    """Decode a sink from its message.

    Raises:
        InvalidInputError: The message has something that this version doesn't know.
        ValueError: The message has a mode that this version doesn't know.
    """
    return SinkSpec(
        connector=_decode_connector(message.connector),
        cdc=Cdc(message.cdc) if message.cdc else None,
        every_us=_given(message, "every_us"),
        how=_given(message, "how"),
        create=message.create,
        renames=tuple((rename.field, rename.column) for rename in message.renames),
        since_us=_given(message, "since_us"),
        until_us=_given(message, "until_us"),
        env=tuple(message.env),
    )


def source_identity(spec: SourceSpec) -> SourceSpec:
    """Return a source as it counts for the identity of its dataset.

    The identity leaves out the address, the credentials and the interval of polling of its system, and the pickles of
    functions: they may change without a new version of the dataset.
    """
    return replace(
        spec,
        connector=_without_address(spec.connector),
        every_us=None,
        preproc=tuple(
            (name, _without_pickle(made) if isinstance(made, Computed) else made) for name, made in spec.preproc
        ),
        where=None if spec.where is None else _without_pickle(spec.where),
    )


def _without_pickle(computed: Computed) -> Computed:
    return (
        replace(computed, by=replace(computed.by, pickled=b"")) if isinstance(computed.by, PythonFunction) else computed
    )


def _without_address(connector: Connector) -> Connector:
    if isinstance(connector, WebhookConnector):
        return connector
    bare = RegisteredSystem(kind=system_kind(connector), name=connector.system.name)
    if isinstance(connector, KafkaConnector) and isinstance(connector.format, SchemaRegistry):
        registry = replace(connector.format, username=None, password=None, token=None)
        return replace(connector, system=bare, format=registry)
    return replace(connector, system=bare)


def _given(message: Any, name: str) -> Any:  # noqa: ANN401 (a field of a message)
    return getattr(message, name) if message.HasField(name) else None


def _encode_secretish(value: Secretish) -> pb.Secretish:
    if isinstance(value, SecretRef):
        return pb.Secretish(secret=pb.Secret(arn=value.arn, role_arn=value.role_arn, path=value.path))
    return pb.Secretish(plain=value)


def _decode_secretish(message: pb.Secretish) -> Secretish:
    match message.WhichOneof("kind"):
        case "plain":
            return message.plain
        case "secret":
            secret = message.secret
            return SecretRef(arn=secret.arn, role_arn=_given(secret, "role_arn"), path=tuple(secret.path))
        case _:
            raise InvalidInputError("a setting of a kind that this version of Caraway doesn't know")


def _encode_system(connector: Connector) -> pb.ExternalSystem:
    kind = system_kind(connector)
    if isinstance(connector, WebhookConnector):
        return pb.ExternalSystem(kind=kind, name=connector.name)
    system = connector.system
    if isinstance(system, RegisteredSystem):
        return pb.ExternalSystem(kind=kind, name=system.name, registered=True)
    settings = {f.name: getattr(system, f.name) for f in fields(system) if f.name != "name"}
    return pb.ExternalSystem(
        kind=kind,
        name=system.name,
        settings={
            name: _encode_secretish(str(value) if name in _NUMBERS else value)
            for name, value in settings.items()
            if value is not None
        },
    )


def _decode_system(message: pb.ExternalSystem) -> Any:  # noqa: ANN401 (the connector's decoder knows which)
    kind = SystemKind(message.kind)
    if message.registered:
        return RegisteredSystem(kind=kind, name=message.name)
    settings: dict[str, Any] = {name: _decode_secretish(value) for name, value in message.settings.items()}
    for name in _NUMBERS & settings.keys():
        settings[name] = int(settings[name])
    try:
        return _SYSTEMS[kind](name=message.name, **settings)
    except TypeError as error:
        raise InvalidInputError(f"{kind} {message.name} has settings of another version of Caraway: {error}") from None


def _encode_connector(connector: Connector) -> pb.Connector:
    message = pb.Connector(system=_encode_system(connector))
    match connector:
        case WebhookConnector():
            message.webhook.CopyFrom(
                pb.Connector.Webhook(endpoint=connector.endpoint, retention_us=connector.retention_us)
            )
        case KafkaConnector():
            message.kafka.topic = connector.topic
            if isinstance(connector.format, SchemaRegistry):
                message.kafka.registry.CopyFrom(_encode_registry(connector.format))
            else:
                message.kafka.plain = connector.format
        case S3Connector():
            message.s3.CopyFrom(_encode_s3(connector))
        case TableConnector():
            message.table.CopyFrom(pb.Connector.Table(table=connector.table, cursor=connector.cursor))
        case KinesisConnector():
            message.kinesis.CopyFrom(pb.Connector.Kinesis(stream_arn=connector.stream_arn, format=connector.format))
            if isinstance(connector.start, StreamStart):
                message.kinesis.place = connector.start
            else:
                message.kinesis.at_us = connector.start
        case PubSubConnector():
            message.pubsub.CopyFrom(pb.Connector.PubSub(topic=connector.topic, format=connector.format))
        case HTTPConnector():
            headers = [pb.Connector.Header(name=name, value=value) for name, value in connector.headers]
            message.http.CopyFrom(
                pb.Connector.HTTP(endpoint=connector.endpoint, limit=connector.limit, headers=headers)
            )
    return message


def _decode_connector(message: pb.Connector) -> Connector:
    kind = message.WhichOneof("kind")
    if kind == "webhook":
        webhook = message.webhook
        return WebhookConnector(name=message.system.name, endpoint=webhook.endpoint, retention_us=webhook.retention_us)
    system = _decode_system(message.system)
    match kind:
        case "kafka":
            kafka = message.kafka
            in_registry = kafka.WhichOneof("format") == "registry"
            return KafkaConnector(
                system=system,
                topic=kafka.topic,
                format=_decode_registry(kafka.registry) if in_registry else kafka.plain,
            )
        case "s3":
            return _decode_s3(message.s3, system)
        case "table":
            return TableConnector(system=system, table=message.table.table, cursor=_given(message.table, "cursor"))
        case "kinesis":
            kinesis = message.kinesis
            at_place = kinesis.WhichOneof("start") == "place"
            return KinesisConnector(
                system=system,
                stream_arn=kinesis.stream_arn,
                start=StreamStart(kinesis.place) if at_place else kinesis.at_us,
                format=kinesis.format,
            )
        case "pubsub":
            return PubSubConnector(system=system, topic=message.pubsub.topic, format=message.pubsub.format)
        case "http":
            http = message.http
            headers = tuple((header.name, header.value) for header in http.headers)
            return HTTPConnector(system=system, endpoint=http.endpoint, limit=_given(http, "limit"), headers=headers)
        case _:
            raise InvalidInputError("a connector of a kind that this version of Caraway doesn't know")


def _encode_registry(registry: SchemaRegistry) -> pb.SchemaRegistry:
    def secretish(value: Secretish | None) -> pb.Secretish | None:
        return None if value is None else _encode_secretish(value)

    return pb.SchemaRegistry(
        format=registry.format,
        registry=registry.registry,
        url=registry.url,
        username=secretish(registry.username),
        password=secretish(registry.password),
        token=secretish(registry.token),
    )


def _decode_registry(message: pb.SchemaRegistry) -> SchemaRegistry:
    def secretish(name: str) -> Secretish | None:
        return _decode_secretish(getattr(message, name)) if message.HasField(cast("Any", name)) else None

    return SchemaRegistry(
        format=RegistryFormat(message.format),
        registry=message.registry,
        url=message.url,
        username=secretish("username"),
        password=secretish("password"),
        token=secretish("token"),
    )


def _encode_s3(connector: S3Connector) -> pb.Connector.S3:
    message = pb.Connector.S3(
        bucket=connector.bucket,
        prefix=connector.prefix,
        suffix=connector.suffix,
        presorted=connector.presorted,
        spread_us=connector.spread_us,
    )
    if isinstance(connector.format, CSVFormat):
        headers = connector.format.headers
        message.csv.CopyFrom(
            pb.Connector.CSV(
                delimiter=connector.format.delimiter, first_line_has_names=headers is None, headers=headers or ()
            )
        )
    else:
        message.plain = connector.format
    return message


def _decode_s3(message: pb.Connector.S3, system: S3System | RegisteredSystem) -> S3Connector:
    csv = message.csv
    in_csv = message.WhichOneof("format") == "csv"
    headers = None if csv.first_line_has_names else tuple(csv.headers)
    return S3Connector(
        system=system,
        bucket=message.bucket,
        prefix=message.prefix,
        suffix=_given(message, "suffix"),
        format=CSVFormat(delimiter=csv.delimiter, headers=headers) if in_csv else message.plain,
        presorted=message.presorted,
        spread_us=_given(message, "spread_us"),
    )


def _encode_made(name: str, made: Ref | Constant | Computed) -> pb.Source.Made:
    match made:
        case Ref():
            return pb.Source.Made(field=name, ref=pb.Source.Ref(path=made.path))
        case Constant():
            constant = pb.Source.Constant(value=encode_value(made.value), dtype=encode_type(made.dtype))
            return pb.Source.Made(field=name, constant=constant)
        case Computed():
            return pb.Source.Made(field=name, computed=_encode_computed(made))


def _decode_made(message: pb.Source.Made) -> tuple[str, Ref | Constant | Computed]:
    match message.WhichOneof("kind"):
        case "ref":
            return message.field, Ref(path=tuple(message.ref.path))
        case "constant":
            constant = message.constant
            return message.field, Constant(value=decode_value(constant.value), dtype=decode_type(constant.dtype))
        case "computed":
            return message.field, _decode_computed(message.computed)
        case _:
            raise InvalidInputError(f"{message.field} is made in a way that this version of Caraway doesn't know")


def _encode_computed(computed: Computed) -> pb.Source.Computed:
    message = pb.Source.Computed(
        schema=[pb.Source.Column(name=name, dtype=encode_type(dtype)) for name, dtype in computed.schema]
    )
    by = computed.by
    if isinstance(by, PythonFunction):
        message.function.CopyFrom(
            pb.Source.Function(name=by.name, source_code=by.source_code, pickled=by.pickled, includes=by.includes)
        )
    else:
        message.expr.CopyFrom(encode_expr(by))
    return message


def _decode_computed(message: pb.Source.Computed) -> Computed:
    schema = tuple((column.name, decode_type(column.dtype)) for column in message.schema)
    match message.WhichOneof("kind"):
        case "expr":
            return Computed(by=decode_expr(message.expr), schema=schema)
        case "function":
            function = message.function
            return Computed(
                by=PythonFunction(
                    name=function.name,
                    source_code=function.source_code,
                    pickled=function.pickled,
                    includes=tuple(function.includes),
                ),
                schema=schema,
            )
        case _:
            raise InvalidInputError("a computation of a kind that this version of Caraway doesn't know")
