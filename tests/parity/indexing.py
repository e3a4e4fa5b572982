"""An index that runs beside the test, and one in a process of its own, which may be killed."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.managers import BaseManager, RemoteError
from pathlib import Path
from typing import Any, Protocol, TypeVar

from caraway.dataplane.index.feeding.tail import every_partition
from caraway.dataplane.index.feeding.worker import IndexStatus, IndexWorker, merged
from caraway.dataplane.index.reader import IndexReader, kafka_key
from caraway.dataplane.index.records.closing_time import stored_closing_time
from caraway.dataplane.index.sharding.keys import is_divided, shard_of
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.windows import Elsewhere
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.graph.plan.model import IndexPlan

#: Errors of a call to a process that was killed or isn't there yet.
AWAY = (EOFError, ConnectionError, BrokenPipeError, RemoteError)

T = TypeVar("T")


class Index(Protocol):
    """The parts of an index that a test needs."""

    def set_plans(self, plans: Sequence[IndexPlan]) -> None: ...

    def positions(self) -> list[IndexStatus]: ...

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]: ...


class LocalIndex:
    """An index in this process."""

    def __init__(
        self,
        bootstrap_servers: str,
        store: IndexStore,
        *,
        holds: Callable[[int], bool] = every_partition,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._worker = IndexWorker(bootstrap_servers, store, holds=holds)
        self._reader = IndexReader(store, elsewhere=elsewhere)
        self.set_plans, self.positions, self.read = self._worker.set_plans, self._worker.positions, self._reader.read
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop()


class DoubleIndex:
    """An index in this process, whole, and divided into shards as well; both must answer the same."""

    def __init__(self, bootstrap_servers: str, whole: IndexStore, shards: Sequence[IndexStore]) -> None:
        self._store = whole
        self._stores = shards
        self._whole = LocalIndex(bootstrap_servers, whole)
        self._shards = [
            LocalIndex(
                bootstrap_servers,
                store,
                holds=partial(self._belongs, number),
                elsewhere=partial(self._elsewhere, number),
            )
            for number, store in enumerate(shards)
        ]

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        self._whole.set_plans(plans)
        for shard in self._shards:
            shard.set_plans([plan for plan in plans if is_divided(plan)])

    def positions(self) -> list[IndexStatus]:
        """Return how far each index is where it is less far."""
        shards = merged([status for shard in self._shards for status in shard.positions()])
        divided = {status.asset: status for status in shards}
        return [min(s, divided.get(s.asset, s), key=_records) for s in self._whole.positions()]

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        rows = self._whole.read(plan, keys, at_us, columns)
        if is_divided(plan):
            divided = self._read_divided(plan, keys, at_us, columns)
            # Text, so that NaN equals NaN, and 0.0 doesn't equal -0.0.
            assert repr(divided) == repr(rows), f"a divided index of {plan.dataset} answers otherwise"
        return rows

    def read_without(
        self,
        erased: ErasedKeys,
        plan: IndexPlan,
        keys: Sequence[bytes],
        at_us: Sequence[int],
        columns: Sequence[str],
    ) -> tuple[list[list[object]], list[bool]]:
        """Read as `read` does, but not the rows of erased keys."""
        return IndexReader(self._store, erased).read(plan, keys, at_us, columns)

    def stop(self) -> None:
        for index in (self._whole, *self._shards):
            index.stop()

    def _read_divided(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        (partitions,) = (len(s.offsets) for s in self._whole.positions() if s.asset == plan.asset.hex())
        to_kafka = kafka_key(plan)
        ats = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        answers: list[list[object]] = []
        found: list[bool] = []
        for key, at in zip(keys, ats, strict=True):
            shard = self._shards[shard_of(to_kafka(key), partitions, len(self._shards))]
            values, there = shard.read(plan, [key], [at], columns)
            answers.append([value for (value,) in values])
            found += there
        return [[answer[place] for answer in answers] for place in range(len(columns))], found

    def _belongs(self, number: int, partition: int) -> bool:
        return partition % len(self._stores) == number

    def _elsewhere(self, number: int, asset: bytes) -> int | None:
        others = (stored_closing_time(store, asset) for n, store in enumerate(self._stores) if n != number)
        return max((at for at in others if at is not None), default=None)


def _records(status: IndexStatus) -> int:
    return sum(status.offsets.values())


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
        return self._retrying(lambda served: served.positions())

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        found: tuple[list[list[object]], list[bool]] = self._retrying(
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

    def _retrying(self, call: Callable[[Any], T]) -> T:
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
