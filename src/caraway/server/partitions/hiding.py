"""Reads of an index that is divided, but for what is whole; they don't show erased keys."""

from collections.abc import Sequence

from caraway.index.records.hiding import visible
from caraway.plan.model import IndexPlan
from caraway.server.partitions.sharding import is_divided
from caraway.server.reading import Index, PartlyRemote, Rows
from caraway.topics import ErasedKeys


class HidingIndex:
    """Reads as another index does, but erased keys look as if they had never been; see `index.hiding.HidingReader`."""

    def __init__(self, index: PartlyRemote, whole: Index, erased: ErasedKeys) -> None:
        """Read what `erased` doesn't hide: from `index` what is divided, from `whole` what isn't."""
        self._index = index
        self._whole = whole
        self._erased = erased

    def read(self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]) -> Rows:
        """Read the rows of `keys` as of `at_us`."""
        index = self._index if is_divided(plan) else self._whole
        return index.read(plan, keys, visible(self._erased, plan, keys, at_us), columns)

    async def read_soon(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> Rows:
        """Read while the event loop goes on."""
        if not is_divided(plan):
            return self.read(plan, keys, at_us, columns)
        return await self._index.read_soon(plan, keys, visible(self._erased, plan, keys, at_us), columns)
