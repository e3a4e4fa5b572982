"""Rebuilding a database that turns out to be damaged while it is used, without a restart."""

import logging
from collections.abc import Mapping
from typing import Protocol

from caraway.index.storage.store import IndexStore
from caraway.recurring import Recurring

LOGGER = logging.getLogger(__name__)

INTERVAL_S = 0.2


class DatabaseFiller(Protocol):
    """The follower of topics that fills the database (`caraway.index.IndexWorker`)."""

    def rebuild(self) -> None:
        """Replace the damaged database by a new one, and begin to fill it."""
        ...

    def has_regained(self, due: Mapping[bytes, Mapping[int, int]]) -> bool:
        """Return whether each index has reached the offsets in `due`."""
        ...


class Rebuilding:
    """A thread that replaces a damaged database, and allows reads again once the new one has caught up."""

    def __init__(self, worker: DatabaseFiller, store: IndexStore, *, interval_s: float = INTERVAL_S) -> None:
        """Prepare; nothing is checked before `start`."""
        self._worker = worker
        self._store = store
        self._recurring = Recurring("index-rebuilding", self.look, interval_s)

    def start(self) -> None:
        """Start the thread."""
        self._recurring.start()

    def stop(self, timeout_s: float) -> None:
        """Stop the thread; a rebuilding in progress continues at the next start."""
        self._recurring.stop(timeout_s)

    def problem(self) -> str | None:
        """Return the reason why reads are refused; None if they aren't."""
        return "it was damaged and isn't built anew yet" if self._store.refusing or self._store.damaged else None

    def look(self) -> None:
        """Check the database once: replace it if it is damaged, allow reads if it has caught up.

        Raises:
            UnavailableError: The damaged database can't be replaced now.
        """
        store = self._store
        if store.damaged:
            self._worker.rebuild()
        elif store.due is not None and self._worker.has_regained(store.due):
            store.end_refusing()
            LOGGER.info("the index at %s has all that it had before it was damaged", store.path)
