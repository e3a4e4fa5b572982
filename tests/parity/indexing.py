"""An index that runs beside the test, and one in a process of its own, which may be killed."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.managers import BaseManager, RemoteError
from pathlib import Path
from typing import Any, Protocol, TypeVar

from caraway.index import IndexReader, IndexStore, IndexWorker
from caraway.index.feeding.worker import IndexStatus
from caraway.plan import IndexPlan

#: What a call to a process raises that was killed or isn't there yet.
AWAY = (EOFError, ConnectionError, BrokenPipeError, RemoteError)

T = TypeVar("T")


class Index(Protocol):
    """What a test needs of an index."""

    def set_plans(self, plans: Sequence[IndexPlan]) -> None: ...

    def positions(self) -> list[IndexStatus]: ...

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]: ...


class LocalIndex:
    """An index in this process."""

    def __init__(self, bootstrap_servers: str, store: IndexStore) -> None:
        self._worker = IndexWorker(bootstrap_servers, store)
        self._reader = IndexReader(store)
        self.set_plans, self.positions, self.read = self._worker.set_plans, self._worker.positions, self._reader.read
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop()


class _Served:
    """The index, as it stands in its process."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        index = LocalIndex(bootstrap_servers, IndexStore(folder))
        self.set_plans, self.positions, self.read = index.set_plans, index.positions, index.read

    def pid(self) -> int:
        return os.getpid()


class _Manager(BaseManager):
    pass


_Manager.register("index", _Served, exposed=("set_plans", "positions", "read", "pid"))


class KillableIndex:
    """An index in a process of its own. A call waits while it is started again."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._arguments = (bootstrap_servers, folder)
        self._plans: Sequence[IndexPlan] = ()
        self._changing = threading.Lock()
        self._start()

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        self._plans = list(plans)
        self._served.set_plans(self._plans)

    def positions(self) -> list[IndexStatus]:
        return self._patiently(lambda served: served.positions())

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        found: tuple[list[list[object]], list[bool]] = self._patiently(
            lambda served: served.read(plan, keys, at_us, columns)
        )
        return found

    def kill(self) -> None:
        """Kill the process, and start another one on the same folder."""
        with self._changing:
            os.kill(self._served.pid(), signal.SIGKILL)
            self._manager.shutdown()
            self._start()
            self._served.set_plans(self._plans)

    def stop(self) -> None:
        self._manager.shutdown()

    def _start(self) -> None:
        # Spawned: threads, of which the test has many, don't survive a fork.
        self._manager = _Manager(ctx=get_context("spawn"))
        self._manager.start()
        self._served: Any = self._manager.index(*self._arguments)  # type: ignore[attr-defined]

    def _patiently(self, call: Callable[[Any], T]) -> T:
        while True:
            with self._changing:
                served = self._served
            try:
                return call(served)
            except AWAY:
                # While it is being started again, the lock is held. One that went away by itself is a fault.
                with self._changing:
                    if served is self._served:
                        raise
