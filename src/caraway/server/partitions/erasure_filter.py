"""Reads of a divided index that don't show erased keys."""

from collections.abc import Sequence

from caraway.index.records.erasure_filter import visible
from caraway.plan.model import IndexPlan
from caraway.server.reading import PartlyRemote, Rows
from caraway.topics import ErasedKeys


class AsyncErasureFilter:
    """An index that hides erased keys, as if they had never been; see `ErasureFilter`."""

    def __init__(self, index: PartlyRemote, erased: ErasedKeys) -> None:
        """Read from `index`, without the keys that `erased` hides."""
        self._index = index
        self._erased = erased

    def read(self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]) -> Rows:
        """Read the rows of `keys` as of `at_us`."""
        return self._index.read(plan, keys, visible(self._erased, plan, keys, at_us), columns)

    async def read_async(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> Rows:
        """Read without blocking the event loop."""
        return await self._index.read_async(plan, keys, visible(self._erased, plan, keys, at_us), columns)
