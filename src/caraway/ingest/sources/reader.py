"""The protocol of a source's reader, which is all that a further system has to implement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

# The offset behind the last record that was read of each partition, by the partition's name: the next one to read.
Offsets = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record of a source.

    `partition` and `offset` are its position, which is the same whenever it is read; `partition` has neither a colon
    nor a dot. `value` is None for a tombstone, which has no row.
    """

    partition: str
    offset: int
    value: bytes | None


class SourceReader(Protocol):
    """Reads one source from given offsets. It is used by one thread."""

    def seek(self, offsets: Offsets) -> None:
        """Go on from these offsets; partitions without an offset are read from their beginning.

        Raises `UnavailableError` if the system doesn't answer, or refuses.
        """
        ...

    def poll(self, *, rows: int, size: int, timeout_s: float) -> list[SourceRecord]:
        """Return the next records in the order of each partition: at once if there are any, else after waiting.

        Args:
            rows: The most records.
            size: The bytes of records behind which no further one is added.
            timeout_s: The longest wait for the first record.

        Raises:
            UnavailableError: The system doesn't answer, or refuses.
        """
        ...

    def acknowledge(self, offsets: Offsets) -> None:
        """Note in the system that the records before these offsets are durable, if the system can keep them."""
        ...

    def lag(self) -> int | None:
        """Return how many records are there beyond those read; None if that isn't known."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
