"""The things that outlive the worker of a source, in memory: topics, checkpoints and the lease."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from caraway.dataplane.confined.fleet import LASTING, RENEWAL_S
from caraway.dataplane.ingest.marks import Starts, Written
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.positions import Checkpoint
from caraway.dataplane.sources.reader import SourceReader
from caraway.dataplane.sources.worker import HEADER, SourceWorker
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.producer import TopicItem
from tests.unit.leased import KilledError, Leased


@dataclass(kw_only=True)
class Kept(Leased):
    """All that outlives a worker, but the source; it is killed after `fuse` items."""

    topics: dict[str, list[TopicItem]] = field(default_factory=dict)
    saved: Checkpoint | None = None
    remembered: dict[str, bytes] = field(default_factory=dict)

    # The writer.
    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        future: Future[None] = Future()
        for item in items:
            self.burn()
            self.topics.setdefault(topic, []).append(item)
        future.set_result(None)
        return future

    # The topics, of one partition each.
    def ends(self, names: Sequence[str]) -> Starts:
        return {name: {0: len(self.topics.get(name, []))} for name in names}

    def marks(self, starts: Starts, header: str, key: str) -> Written:
        assert header == HEADER
        found = set()
        for topic, partitions in starts.items():
            for _, _, headers in self.topics.get(topic, [])[partitions[0] :]:
                mark, dataset, of = dict(headers or {})[HEADER].decode().split(":", 2)
                assert of == key
                found.add((dataset, mark))
        return frozenset(found)

    # The checkpoints.
    def load(self, source: str) -> Checkpoint | None:
        assert source
        return self.saved

    def items(self, source: str) -> dict[str, bytes]:
        assert source
        return dict(self.remembered)

    def save(self, source: str, token: int, checkpoint: Checkpoint, items: Mapping[str, bytes | None]) -> bool:
        assert source
        if self.fuse <= 0:
            raise KilledError
        if token < self.owner_token:
            return False
        self.saved = checkpoint
        for item, value in items.items():
            if value is None:
                self.remembered.pop(item, None)
            else:
                self.remembered[item] = value
        return True

    def worker_of(self, name: str, target: Target, connect: Callable[[], SourceReader], **more: Any) -> SourceWorker:
        given: dict[str, Any] = {"erased": ErasedKeys(dict), "sleep": self.sleep, **more}
        return SourceWorker(
            name,
            target,
            connect=connect,
            right=self.held(LASTING, RENEWAL_S),
            positions=self,
            topics=self,
            writer=self,
            clock=lambda: self.now,
            **given,
        )
