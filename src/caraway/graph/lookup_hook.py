"""Who answers `Dataset.lookup` inside an extractor: the engine that runs it says so here.

The module is neutral ground: authoring calls the hook, engines set it, and neither knows the other. The hook is a context
variable, so that extractors which run at the same time, in threads or tasks, each find their own engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd


class LookupHook(Protocol):
    """What `Dataset.lookup` becomes while an engine runs an extractor."""

    def __call__(
        self, dataset: str, ts: pd.Series, keys: Mapping[str, pd.Series], fields: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.Series]:
        """Look rows up as of `ts`, one for each.

        Args:
            dataset: Name of the dataset.
            ts: An instant for each row, tz-aware.
            keys: For each key field of the dataset a series as long as `ts`; nulls are never found.
            fields: Columns of the answer, in this order; all fields of the dataset, as declared, if empty.

        Returns:
            A frame and a boolean series `found`, both indexed from 0 in the order of the request. Values of rows that
            aren't found are null; columns have nullable dtypes, structs are instances.

        Raises:
            InvalidInputError: The dataset isn't among those that the extractor may read, has no such field, or lacks
                the index that the read needs.
        """
        ...


_hook: ContextVar[LookupHook | None] = ContextVar("caraway_lookup_hook", default=None)


def lookup_hook() -> LookupHook | None:
    """Return the hook of the engine that runs the caller; None outside an engine."""
    return _hook.get()


@contextmanager
def lookups_through(hook: LookupHook) -> Iterator[None]:
    """Send every `Dataset.lookup` of the block through `hook`."""
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)
