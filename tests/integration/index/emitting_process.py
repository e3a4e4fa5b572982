"""A process that emits the rows of an aggregate until it is killed: `emitting_process.py BROKER FOLDER LABEL`."""

import sys
import time
from pathlib import Path

from caraway.index.feeding.worker import IndexWorker
from caraway.index.storage.store import IndexStore
from tests.integration.index.rows import CASES, emitting


def main() -> None:
    broker, folder, label = sys.argv[1:]
    worker = IndexWorker(broker, IndexStore(Path(folder)))
    worker.start()
    worker.set_plans([emitting(name, label) for name in CASES])
    print("following", flush=True)  # noqa: T201 (who started us waits for it)
    while worker.is_alive():
        time.sleep(0.1)


if __name__ == "__main__":
    main()
