"""The shape of the tile pyramid: levels, fan-out, and the mark at which a tile is split (docs/decisions/0003)."""

from dataclasses import dataclass

from caraway.dataplane.index.storage.keys import SIGN

TIME_BITS = 64
# A tile keeps at most this many distinct values of a column; if there are more, a sketch replaces all of them. A value
# takes 10 to 50 bytes, so a column takes at most some 13 KB of the tile.
MOST_VALUES = 256


@dataclass(frozen=True, slots=True)
class Geometry:
    """Tiles of level n are 2**(base_bits + n * fan_bits) us long; above `split` aggregate inputs a tile has children.

    Up to `values` distinct values of a column are kept in a tile (`caraway.dataplane.index.aggregates.values`). With
    the default bits the tiles of the levels are 4.1 ms, 33 ms, 0.26 s, 2.1 s, 17 s, 2.2 min, 18 min, 2.4 h, 19 h, 6.4
    d, 51 d, 1.1 y and 8.9 y long, and so on until one tile covers all of time.
    """

    base_bits: int = 12
    fan_bits: int = 3
    split: int = 64
    values: int = MOST_VALUES

    def shift(self, level: int) -> int:
        """Return the binary logarithm of the length of a tile in microseconds."""
        return min(TIME_BITS, self.base_bits + level * self.fan_bits)

    def number(self, level: int, time_us: int) -> int:
        """Return the number of the tile that an event time lies in."""
        return (time_us + SIGN) >> self.shift(level)

    def bounds(self, level: int, number: int) -> tuple[int, int]:
        """Return the first and the last event time of a tile, in microseconds."""
        shift = self.shift(level)
        first = (number << shift) - SIGN
        return first, first + (1 << shift) - 1

    def level_of(self, low_us: int, high_us: int) -> int:
        """Return the level of the root: the lowest with one tile for all times from `low_us` to `high_us`.

        Each tile above the root would have the same content as the root, so these tiles aren't kept.
        """
        bits = ((low_us + SIGN) ^ (high_us + SIGN)).bit_length()
        return max(0, -(-(bits - self.base_bits) // self.fan_bits))

    def children(self, level: int, number: int) -> range:
        """Return the numbers of the tiles one level below that a tile is divided into."""
        bits = self.shift(level) - self.shift(level - 1)
        return range(number << bits, (number + 1) << bits)

    def describe(self) -> bytes:
        """Return the description that is stored in the database, since tiles of another shape can't be used."""
        return f"{self.base_bits} {self.fan_bits} {self.split} {self.values}".encode()


DEFAULT_GEOMETRY = Geometry()
