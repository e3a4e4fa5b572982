"""The protocol of decoders."""

from collections.abc import Sequence
from typing import Protocol


class Decoder(Protocol):
    """Turns values of records into rows. It is used by one thread."""

    def decode(self, values: Sequence[bytes]) -> tuple[list[object], dict[int, str]]:
        """Return for each value a row, and by position the reasons why values are no rows.

        A row is a dict of the values that the casts of `caraway.compute.rows` take. In place of a value that is no row,
        the list has a text that shows it. A value that can't be decoded affects no other one.

        Raises:
            UnavailableError: Something that is needed to decode doesn't answer, or refuses. No value is at fault then,
                and the same values can be decoded later.
        """
        ...

    def close(self) -> None:
        """End the decoder's connections."""
        ...
