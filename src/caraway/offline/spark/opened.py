"""The parts that a process of Spark's tasks opens at its first task of a run, and keeps for the others."""

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from caraway.dataplane.archive.store.reading import Cuts
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.offline.queries.context import QueryContext, opened_context
from caraway.offline.queries.model import OfflineRequest
from caraway.process.program import database_url
from caraway.process.scratch import sweep
from caraway.process.settings.settings import load_settings
from caraway.state.database import connect
from caraway.state.plans import Planned

T = TypeVar("T")

_open: dict[str, object] = {}
_closing = ExitStack()
atexit.register(_closing.close)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The parts that tasks of any kind need: the object store that all of them see, and the records."""

    objects: ObjectFolder
    context: QueryContext


def kept(name: str, kind: type[T], make: Callable[[ExitStack], T]) -> T:
    """Return what `make` has made for a run in this process, and made if this is the first call with its name.

    The object of an earlier run is closed.
    """
    found = _open.get(name)
    if not isinstance(found, kind):
        _closing.close()
        _open.clear()
        found = make(_closing)
        _open[name] = found
    return found


@contextmanager
def opened(planned: Planned, request: OfflineRequest, commit: str, cuts: Cuts) -> Iterator[TaskContext]:
    """Yield what tasks of a request need, opened with the settings of this process's environment."""
    settings = load_settings()
    # Tasks whose processes were killed couldn't remove their scratch folders, so the next process does.
    sweep()
    database = connect(database_url(settings, "an offline query"))
    try:
        with opened_context(settings, database, planned, request, commit, cuts=cuts) as context:
            yield TaskContext(ObjectFolder(settings.objects_url), context)
    finally:
        database.dispose()
