"""Windows and aggregates to protobuf and back."""

from caraway.errors import InvalidInputError
from caraway.graph.operators import AggregateFunction, AggregateSpec
from caraway.graph.pb.caraway.v1 import operators_pb2 as pb
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow, Window
from caraway.graph.wire.types import decode_type, decode_value, encode_type, encode_value


def encode_window(window: Window | None) -> pb.Window | None:
    """Encode a window as its message; None stays None."""
    match window:
        case None:
            return None
        case ContinuousWindow(length_us=length):
            return pb.Window(continuous=pb.Window.Continuous(length_us=length))
        case HoppingWindow():
            return pb.Window(
                hopping=pb.Window.Hopping(
                    length_us=window.length_us, stride_us=window.stride_us, lookback_us=window.lookback_us
                )
            )
        case SessionWindow(gap_us=gap):
            return pb.Window(session=pb.Window.Session(gap_us=gap))


def decode_window(message: pb.Window) -> Window:
    """Decode a window from its message.

    Raises:
        InvalidInputError: The message is of a kind that this version doesn't know.
    """
    match message.WhichOneof("kind"):
        case "continuous":
            continuous = message.continuous
            return ContinuousWindow(length_us=continuous.length_us if continuous.HasField("length_us") else None)
        case "hopping":
            hopping = message.hopping
            return HoppingWindow(
                length_us=hopping.length_us if hopping.HasField("length_us") else None,
                stride_us=hopping.stride_us,
                lookback_us=hopping.lookback_us,
            )
        case "session":
            return SessionWindow(gap_us=message.session.gap_us)
        case _:
            raise InvalidInputError("a window of a kind that this version of Caraway doesn't know")


def encode_aggregate(aggregate: AggregateSpec) -> pb.Operator.AggregateColumn:
    """Encode an aggregate as its message."""
    return pb.Operator.AggregateColumn(
        function=aggregate.function,
        into=aggregate.into,
        of=aggregate.of,
        window=encode_window(aggregate.window),
        default=encode_value(aggregate.default),
        dtype=encode_type(aggregate.dtype),
        unique=aggregate.unique,
        approx=aggregate.approx,
        dropnull=aggregate.dropnull,
        dedup=aggregate.dedup,
        limit=aggregate.limit,
        p=aggregate.p,
        half_life_us=aggregate.half_life_us,
    )


def decode_aggregate(message: pb.Operator.AggregateColumn) -> AggregateSpec:
    """Decode an aggregate from its message.

    Raises:
        InvalidInputError: The message is damaged, or of a kind that this version doesn't know.
    """
    window = decode_window(message.window) if message.HasField("window") else None
    if isinstance(window, SessionWindow):
        raise InvalidInputError("a damaged pipeline: a session window is that of a groupby, never of one aggregate")
    return AggregateSpec(
        function=AggregateFunction(message.function),
        into=message.into,
        of=message.of if message.HasField("of") else None,
        window=window,
        default=decode_value(message.default),
        dtype=decode_type(message.dtype),
        unique=message.unique,
        approx=message.approx,
        dropnull=message.dropnull,
        dedup=message.dedup,
        limit=message.limit if message.HasField("limit") else None,
        p=message.p if message.HasField("p") else None,
        half_life_us=message.half_life_us if message.HasField("half_life_us") else None,
    )


def decode_group_window(message: pb.Operator.Aggregate | pb.Operator.Dedup) -> HoppingWindow | SessionWindow | None:
    """Decode the window of a groupby or dedup, None if it has none.

    Raises:
        InvalidInputError: The window is continuous, or of a kind that this version doesn't know.
    """
    if not message.HasField("window"):
        return None
    window = decode_window(message.window)
    if isinstance(window, ContinuousWindow):
        raise InvalidInputError("a damaged pipeline: a continuous window is that of an aggregate, never of a group")
    return window
