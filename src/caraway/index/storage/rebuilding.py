"""A database that turns out damaged while it is used is built anew, without a restart."""

import logging
from collections.abc import Mapping
from typing import Protocol

from caraway.index.storage.store import IndexStore
from caraway.recurring import Recurring

LOGGER = logging.getLogger(__name__)

INTERVAL_S = 0.2


class DatabaseFiller(Protocol):
    """What fills the database (`caraway.index.IndexWorker`)."""

    def rebuild(self) -> None:
        """Take a new database in the place of the damaged one, and begin to fill it."""
        ...

    def has_regained(self, due: Mapping[bytes, Mapping[int, int]]) -> bool:
        """Tell whether each index is as far as `due` says."""
        ...


class Rebuilding:
    """Looks after a database, in a thread: whether it is damaged, and when a new one has all that it had."""

    def __init__(self, worker: DatabaseFiller, store: IndexStore, *, interval_s: float = INTERVAL_S) -> None:
        """Prepare; nothing is looked at before `start`."""
        self._worker = worker
        self._store = store
        self._recurring = Recurring("index-rebuilding", self.look, interval_s)

    def start(self) -> None:
        """Begin."""
        self._recurring.start()

    def stop(self, timeout_s: float) -> None:
        """End; one that is being built anew goes on at the next start."""
        self._recurring.stop(timeout_s)

    def problem(self) -> str | None:
        """Tell why nobody can read; None if everybody can."""
        return "it was damaged and isn't built anew yet" if self._store.refusing or self._store.damaged else None

    def look(self) -> None:
        """Do what is to be done now.

        Raises:
            UnavailableError: The damaged database can't be replaced now.
        """
        store = self._store
        if store.damaged:
            self._worker.rebuild()
        elif store.due is not None and self._worker.has_regained(store.due):
            store.end_refusing()
            LOGGER.info("the index at %s has all that it had before it was damaged", store.path)
