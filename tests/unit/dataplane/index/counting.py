"""A store that counts what is read of it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rocksdict import RdictIter

from caraway.dataplane.index.storage.store import IndexStore


class CountingIterator:
    """An iterator that counts the calls of its methods by their names."""

    def __init__(self, inner: RdictIter, counts: Counter[str]) -> None:
        self._inner = inner
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def counted(*arguments: Any) -> Any:
            self._counts[name] += 1
            return method(*arguments)

        return counted


class CountingStore(IndexStore):
    """A store that counts what iterators, scans and reads of keys do; `counts` may be cleared."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__(*arguments, **options)

    @property
    def seeks(self) -> int:
        return self.counts["seek"] + self.counts["seek_for_prev"]

    @property
    def touched(self) -> int:
        """Return the number of entries that were looked at, seeks included."""
        return self.seeks + sum(self.counts[name] for name in ("next", "prev", "scanned", "got"))

    def iterator(self) -> RdictIter:
        self.counts["iterators"] += 1
        return CountingIterator(super().iterator(), self.counts)  # type: ignore[return-value]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(first, end):
            self.counts["scanned"] += 1
            yield entry

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self.counts["got"] += len(keys)
        return super().get_many(keys)
