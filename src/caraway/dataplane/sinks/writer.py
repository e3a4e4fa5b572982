"""The protocol of a sink's writer, which is all that a further system has to implement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from caraway.dataplane.sinks.changes import Change
from caraway.dataplane.sinks.envelopes import Product
from caraway.errors import UnavailableError
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import Secretish

# The guarantees of sinks.
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly once", "at least once"

# Returns the value of a setting, or of the secret that it refers to.
Resolve = Callable[[Secretish], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """How a server connects to the systems of its users.

    Attributes:
        resolve: Returns the values of secrets.
        ca_file: A file in PEM with the certificate authorities by which systems are verified; empty for those of the
            machine (`sources.ca_file`).
        endpoints: This deployment's addresses of systems, by their names (`sources.endpoints`).
    """

    resolve: Resolve
    ca_file: str = ""
    endpoints: Mapping[str, str] = field(default_factory=dict)


class RetryLaterError(UnavailableError):
    """The system doesn't take a batch now; a later call of `write` with the same batch goes on where this one ended."""


@dataclass(slots=True)
class Batch:
    """Changes that are written together.

    Attributes:
        changes: The changes, those of a key in their order.
        reached: The offset behind the last record that made them, by partition, for all partitions.
        sent: How many of the changes the writer is done with.
    """

    changes: Sequence[Change]
    reached: Mapping[int, int]
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that the system refuses, and why; it becomes a dead letter."""

    change: Change
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """All that a writer needs to know of its sink.

    Attributes:
        plan: The sink.
        name: The name of the sink, which no other sink of the deployment has.
        branch: The branch that envelopes name.
        sign_in: How to connect to the system.
        product: The name of the platform in what is written.
        refuse: Writes dead letters, and returns once they are durable; raises `UnavailableError` if Kafka doesn't
            answer. A writer calls it before it acknowledges the batch that has the changes.
        keep: Returns whether this server still has the right to write; long writes call it now and then.
        pause: Waits for some seconds, or less if the server stops.
    """

    plan: SinkPlan
    name: str
    branch: str
    sign_in: SignIn
    product: Product
    refuse: Callable[[Sequence[Refusal]], None]
    keep: Callable[[], bool]
    pause: Callable[[float], object]


class SinkWriter(Protocol):
    """Writes one sink. It is used by one thread."""

    @property
    def guarantee(self) -> str:
        """The guarantee of the sink: "exactly once" or "at least once"."""
        ...

    @property
    def remembers(self) -> bool:
        """True if the system keeps the position as long as what is written. Then this position alone counts.

        So if the system is restored from a backup, or loses everything, the sink writes what is missing. `write` is
        also called for batches without changes.
        """
        ...

    def positions(self) -> Mapping[int, int]:
        """Return the offsets behind the last written records, as far as the system itself keeps them.

        Raises `UnavailableError` if the system doesn't answer.
        """
        ...

    def write(self, batch: Batch) -> None:
        """Write changes, and return once the system has acknowledged them.

        Raises:
            RetryLaterError: The system doesn't take them now; the writer can go on with the batch later.
            UnavailableError: It isn't known what was written. The writer is closed, and the next one tells by
                `positions`.
        """
        ...

    def close(self) -> None:
        """End the connection."""
        ...


# The function `check` in the module of a writer: checks that a sink can be written, without changing anything. Raises
# `CommitError` if not, and `UnavailableError` or `UnknownEntityError` if a secret can't be looked up.
Check = Callable[[SinkPlan, SignIn], None]
# Opens a sink; raises `UnavailableError` if the system doesn't answer, or refuses.
OpenWriter = Callable[[Writing], SinkWriter]
