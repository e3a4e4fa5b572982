"""Kinesis: streams of AWS."""

from datetime import UTC, date, datetime
from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import ExternalSource, named
from caraway.dtypes.instants import instant_us
from caraway.errors import DefinitionAttributeError, DefinitionError, DefinitionTypeError
from caraway.graph.connectors import KinesisConnector as KinesisSpec
from caraway.graph.connectors import StreamStart
from caraway.graph.systems import KinesisSystem

Instant = datetime | str | float


class at_timestamp:  # noqa: N801 (the API's name)
    """An instant at which the first read of a stream begins; calling it gives the datetime, in UTC.

    Args:
        timestamp: A datetime (UTC if it has no zone), seconds since the epoch, or ISO 8601 text.

    Raises:
        DefinitionError: The text isn't ISO 8601.
        DefinitionTypeError: The instant is of another type.
    """

    def __init__(self, timestamp: Instant) -> None:
        self.timestamp = _instant(timestamp)

    def __call__(self) -> datetime:
        """Return the instant."""
        return self.timestamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, at_timestamp) and other.timestamp == self.timestamp

    def __hash__(self) -> int:
        return hash(self.timestamp)

    def __repr__(self) -> str:
        return f"at_timestamp({self.timestamp.isoformat()})"


class Kinesis(ExternalSource):
    """Kinesis, opened by a role."""

    role_arn: str

    spec_class: ClassVar = KinesisSystem
    required_fields: ClassVar = 'its stream: use .stream("arn:...", init_position="latest", format="json")'

    def stream(
        self,
        stream_arn: str,
        init_position: "str | at_timestamp | Instant",
        format: str,
    ) -> "KinesisConnector":
        """Return the stream of this ARN.

        Args:
            stream_arn: ARN of the stream.
            init_position: The start of the first read: "latest", "trim_horizon", or an instant of arrival.
            format: "json".

        Raises:
            DefinitionAttributeError: Another format.
            DefinitionError: A text that is neither a position nor ISO 8601.
            DefinitionTypeError: A position of another type.
        """
        return KinesisConnector(self, stream_arn, init_position, format)


class KinesisConnector(DataConnector):
    """A stream."""

    data_source: Kinesis
    has_structs = True

    def __init__(
        self,
        data_source: Kinesis,
        stream_arn: str,
        init_position: "str | at_timestamp | Instant",
        format: str,
    ) -> None:
        super().__init__(data_source)
        where = f"Kinesis {data_source.name}"
        self.stream_arn = named(where, "stream_arn", stream_arn)
        if format != "json":
            raise DefinitionAttributeError(f'{where}, stream {stream_arn}: the format is "json", not {format!r}')
        self.format = format
        self.init_position = _position(f"{where}, stream {stream_arn}", init_position)

    def _inside(self) -> str:
        return f"stream={self.stream_arn}, format={self.format}"

    def spec(self) -> KinesisSpec:
        """Return the stream as a value."""
        system = self.data_source.stored_system()
        position = self.init_position
        start = StreamStart(position) if isinstance(position, str) else instant_us(position())
        return KinesisSpec(system=system, stream_arn=self.stream_arn, start=start, format=self.format)


def _position(where: str, given: "str | at_timestamp | Instant") -> "str | at_timestamp":
    if isinstance(given, at_timestamp):
        return given
    if isinstance(given, str) and given.lower() in tuple(StreamStart):
        return given.lower()
    try:
        return at_timestamp(given)
    except (DefinitionError, DefinitionTypeError) as error:
        raise type(error)(f'{where}: init_position is "latest", "trim_horizon" or an instant: {error}') from None


def _instant(given: object) -> datetime:
    match given:
        case datetime():
            return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        case str():
            # A text of digits only is refused, because `fromisoformat` would read eight of them, such as 20240101, as a
            # date. Epochs are given as numbers.
            try:
                parsed = None if given.isdecimal() else datetime.fromisoformat(given)
            except ValueError:
                parsed = None
            if parsed is None:
                raise DefinitionError(f"{given!r} isn't ISO 8601, such as 2024-05-01T12:00:00Z")
            return _instant(parsed)
        case bool() | date():
            raise DefinitionTypeError(f"{type(given).__name__} {given!r} is no instant")
        case int() | float():
            try:
                return datetime.fromtimestamp(given, UTC)
            except (ValueError, OverflowError, OSError):
                raise DefinitionError(f"{given!r} seconds since the epoch is no instant that there is") from None
        case _:
            raise DefinitionTypeError(f"{type(given).__name__} {given!r} is no instant")
