"""A process that follows topics into an index until it is killed: `following_process.py BROKER FOLDER KIND NAME`.

The kind is `flow`, whose indexes follow the topic NAME, or `rows`, whose indexes emit the rows of aggregates to topics
with that label. The process prints a line when it has begun, and one each time it has got further.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.storage.store import IndexStore
from caraway.graph.plan.model import IndexPlan
from tests.integration.index.flow import PLANS
from tests.integration.index.rows import CASES, emitting


def plans_of(kind: str, name: str) -> list[IndexPlan]:
    if kind == "flow":
        return [replace(plan, topic=name) for plan in PLANS]
    return [emitting(case, name) for case in CASES]


def main() -> None:
    broker, folder, kind, name = sys.argv[1:]
    worker = IndexWorker(broker, IndexStore(Path(folder)))
    worker.start()
    worker.set_plans(plans_of(kind, name))
    print("following", flush=True)  # noqa: T201 (the test waits for it)
    reached = 0
    while worker.is_alive():
        progress = sum(s.written + s.unchanged if kind == "flow" else s.emitted for s in worker.positions())
        if progress > reached:
            print(reached := progress, flush=True)  # noqa: T201
        time.sleep(0.005)


if __name__ == "__main__":
    main()
