"""The server's side of a sink whose writer runs in a process of its own (`caraway.dataplane.sinks.hosted`)."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from caraway.dataplane.addresses.limits import ConnectorLimits
from caraway.dataplane.confined.forms import Form, plain
from caraway.dataplane.confined.process import Answer, ConnectorProcess
from caraway.dataplane.confined.rights import rights_of, secrets_of
from caraway.dataplane.sinks.replays import REPLAYED
from caraway.dataplane.sinks.writer import AT_LEAST_ONCE, EXACTLY_ONCE, Batch, Refusal, RetryLaterError, SignIn, Writing
from caraway.graph.plan.model import SinkPlan

# The most seconds of a pause that a process may ask for at once; a longer pause is cut to this.
MOST_PAUSE_S = 60.0
# The numbers of partitions are bounded, since a process could send great ones that make a dict slow; Kafka has some
# 100,000 partitions at most. The least number stands for dead letters (`caraway.dataplane.sinks.replays`).
_POSITIONS = Form(
    list[tuple[Annotated[int, Meta(ge=REPLAYED, lt=1 << 20)], Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]]]
)
_WRITTEN, _TRAITS = Form(tuple[int, str | None]), Form(tuple[str, bool])
_REFUSED, _SECONDS = Form(list[tuple[int, int, str]]), Form(float)


def check_sink(plan: SinkPlan, sign_in: SignIn, limits: ConnectorLimits, seconds: float) -> None:
    """Check that a sink can be written, in a process of its own; the thread is held to the limits of its connector.

    Raises what `caraway.dataplane.sinks.writer.Check` does, and `UnavailableError` after so many seconds.
    """
    module = plan.sink.connector.writer.partition(":")[0]
    arguments = (f"{module}:check", plan, _plain(sign_in))
    with closing(_process("HostedCheck", arguments, plan, sign_in=sign_in, limits=limits, seconds=seconds)) as process:
        process.call("check")


class RemoteWriter:
    """A writer in a process of its own (`SinkWriter`)."""

    def __init__(self, writing: Writing, limits: ConnectorLimits) -> None:
        """Start the process, and open the writer in it; the thread is held to the limits of its connector.

        Raises what `caraway.dataplane.sinks.writer.OpenWriter` does.
        """
        self._writing, self._batch = writing, Batch(changes=(), reached={})
        # The changes of the batch that were refused, by partition and offset.
        self._refused: set[tuple[int, int]] = set()
        plain = replace(writing, sign_in=_plain(writing.sign_in), refuse=_nobody, keep=bool, pause=float)
        self._process = _process(
            "HostedWriter",
            (writing.plan.sink.connector.writer, plain),
            writing.plan,
            sign_in=writing.sign_in,
            limits=limits,
            answers={"refuse": self._refuse, "keep": writing.keep, "pause": self._pause},
        )
        self._guarantee, self._remembers = AT_LEAST_ONCE, False
        self._note_traits()

    @property
    def guarantee(self) -> str:
        """The guarantee of the sink."""
        return self._guarantee

    @property
    def remembers(self) -> bool:
        """True if the system keeps the position as long as what is written."""
        return self._remembers

    def positions(self) -> Mapping[int, int]:
        """Return the offsets behind the last written records."""
        found = dict(self._process.read(_POSITIONS, self._process.call("positions")))
        self._note_traits()
        return found

    def write(self, batch: Batch) -> None:
        """Write changes; see `SinkWriter.write`."""
        if batch is not self._batch:
            self._batch, self._refused = batch, set()
        told = self._process.call("write", list(batch.changes), dict(batch.reached), batch.sent)
        sent, reason = self._process.read(_WRITTEN, told)
        if not batch.sent <= sent <= len(batch.changes):
            raise self._process.distrusted(ValueError("it has written more changes than there are"))
        batch.sent = sent
        if reason is not None:
            raise RetryLaterError(plain(reason))

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _note_traits(self) -> None:
        guarantee, self._remembers = self._process.read(_TRAITS, self._process.call("traits"))
        self._guarantee = EXACTLY_ONCE if guarantee == EXACTLY_ONCE else AT_LEAST_ONCE

    def _refuse(self, told: object) -> None:
        """Have dead letters written for changes of the batch, one for each; raises `ValueError` for others."""
        found = _REFUSED.of(told)
        changes = {(change.partition, change.offset): change for change in self._batch.changes}
        if any((partition, offset) not in changes for partition, offset, _ in found):
            raise ValueError("a change is refused that isn't in the batch")
        reasons = {(partition, offset): plain(reason) for partition, offset, reason in found}
        new = {place: reason for place, reason in reasons.items() if place not in self._refused}
        self._refused |= new.keys()
        self._writing.refuse([Refusal(changes[place], reason) for place, reason in new.items()])

    def _pause(self, seconds: object) -> None:
        self._writing.pause(min(max(_SECONDS.of(seconds), 0.0), MOST_PAUSE_S))


def _process(
    factory: str,
    arguments: tuple[object, ...],
    plan: SinkPlan,
    *,
    sign_in: SignIn,
    limits: ConnectorLimits,
    answers: Mapping[str, Answer] = {},
    seconds: float | None = None,
) -> ConnectorProcess:
    connector = plan.sink.connector
    return ConnectorProcess(
        connector.identifier,
        limits,
        rights_of(limits, connector, sign_in.resolve, ca_file=sign_in.ca_file, writes=True),
        factory=f"caraway.dataplane.sinks.hosted:{factory}",
        arguments=arguments,
        answers={"secret": secrets_of(connector, sign_in.resolve), **answers},
        seconds=seconds,
    )


def _nobody(refusals: Sequence[Refusal]) -> None:
    """Stand for what the process asks the server to do, since functions of the server can't be sent."""


def _plain(sign_in: SignIn) -> SignIn:
    """Return how to connect, without the function that looks up secrets, and with plain dicts."""
    return replace(sign_in, resolve=str, endpoints=dict(sign_in.endpoints))
