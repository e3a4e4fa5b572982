"""A process that follows a topic into an index until it is killed: `worker_process.py BROKER FOLDER TOPIC`."""

import sys
import time
from dataclasses import replace
from pathlib import Path

from caraway.index.feeding.worker import IndexWorker
from caraway.index.storage.store import IndexStore
from tests.integration.index.flow import PLANS


def main() -> None:
    broker, folder, topic = sys.argv[1:]
    worker = IndexWorker(broker, IndexStore(Path(folder)))
    worker.start()
    worker.set_plans([replace(plan, topic=topic) for plan in PLANS])
    while worker.is_alive():
        time.sleep(0.1)


if __name__ == "__main__":
    main()
