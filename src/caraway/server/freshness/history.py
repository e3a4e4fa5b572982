"""The ages of datasets over the last hours, by the minute, in the memory of this server."""

from array import array
from collections.abc import Collection, Mapping, Sequence

# Each minute is kept for so many minutes: 3 kB for each index. Prometheus keeps more, for those who have it.
MINUTES = 180
MINUTE_S = 60.0
# An age is noted at most so often, in seconds, as a heartbeat under way is looked at hundreds of times a second.
NOTED_S = 5.0


class AgeHistory:
    """The greatest age of each index in each minute. One thread notes ages, and any threads read them."""

    def __init__(self) -> None:
        """Know no ages yet."""
        self._ages: dict[str, array[float]] = {}
        self._noted_at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Return whether ages are to be noted now, by a clock in seconds that never goes back."""
        return now >= self._noted_at + NOTED_S

    def note(self, now: float, wall: float, ages: Mapping[str, float]) -> None:
        """Note the present ages in seconds, by index, and forget other indexes.

        Args:
            now: The time by a clock in seconds that never goes back.
            wall: The time in seconds since the epoch.
            ages: The ages.
        """
        self._noted_at = now
        minute = wall // MINUTE_S * MINUTE_S
        for name, seconds in ages.items():
            # Minutes and ages by turns in one array, which grows by both at once: a reader in another thread never sees
            # one without the other.
            known = self._ages.setdefault(name, array("d"))
            if known and known[-2] >= minute:
                known[-1] = max(known[-1], seconds)
            else:
                known.extend((minute, seconds))
                if len(known) > 2 * MINUTES:
                    self._ages[name] = known[-2 * MINUTES :]
        for name in self._ages.keys() - ages.keys():
            del self._ages[name]

    def of(self, names: Collection[str]) -> Sequence[tuple[float, float]]:
        """Return the minutes, in seconds since the epoch, with the greatest age of some indexes, oldest first."""
        found: dict[float, float] = {}
        for name in names:
            known = self._ages.get(name, array("d"))[:]
            for minute, seconds in zip(known[::2], known[1::2], strict=True):
                found[minute] = max(seconds, found.get(minute, 0.0))
        return sorted(found.items())
