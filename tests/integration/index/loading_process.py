"""A process that loads an index, and stops before or after a step until it is killed: `FOLDER BROKER TOPIC STEP`.

The tables of the load, and its offsets, are in `FOLDER/made`.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocksdict import WriteBatch

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.storage.store import IndexStore
from tests.integration.index.flow import wait_for
from tests.integration.index.loads import plan_on

STEPS = ("held", "downloaded", "dropped", "rewritten", "ingested", "loaded")


class SteppedStore(IndexStore):
    """A store that stops at a step of a load."""

    stop = ""
    loading = False

    def step(self, name: str) -> None:
        print(name, flush=True)  # noqa: T201 (the test waits for it)
        if name == self.stop:
            sys.stdin.read()

    def drop(self, asset: bytes) -> None:
        super().drop(asset)
        self.step("dropped")

    def rewrite(self, asset: bytes) -> None:
        super().rewrite(asset)
        self.step("rewritten")

    def write(self, batch: WriteBatch) -> None:
        if self.loading:
            self.step("ingested")
        super().write(batch)

    def load(self, asset: bytes, tables: Sequence[Path], offsets: Mapping[int, int]) -> None:
        self.loading = True
        super().load(asset, tables, offsets)
        self.step("loaded")


def main(folder: Path, broker: str, topic: str, stop: str) -> None:
    """Load the index, which already has some records."""
    store = SteppedStore(folder / "index", cache_bytes=1 << 20)
    plan = plan_on(topic)
    worker = IndexWorker(broker, store)
    worker.start()
    worker.set_plans([plan])
    wait_for(lambda: worker.positions()[0].offsets, "the topic")
    assert worker.hold(plan.asset)
    store.stop = stop
    store.step("held")
    made = store.begin_load()
    tables = [Path(shutil.copy(path, made / path.name)) for path in sorted((folder / "made").glob("*.sst"))]
    store.step("downloaded")
    offsets = {int(p): end for p, end in json.loads((folder / "made" / "offsets.json").read_text()).items()}
    assert worker.load(plan.asset, tables, offsets)
    store.step("over")
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
