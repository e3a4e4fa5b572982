"""Offline queries on Spark: the cost for ever longer histories, within the same memory.

    python -m bench spark_history [--events 100000 1000000 10000000] [--asked 100000] [--keys 10000] [--hot]

Events go through a whole stack into the archive. At each number of events an offline query on Spark computes twenty
aggregates (count, sum, average, stddev, max over four windows) for each of `--asked` rows. With --hot half of all
events, and of the rows that are asked for, have one key. The time is that from the request until the client has the
result, with the start of Spark. The memory is the greatest of Spark's JVM, and of each process of its tasks.

Results of the smallest history are compared with those of the same query in process: they must be the same to the bit.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from histories import BEGIN_US, YEAR_US, Events, Values, webhook
from offline import caught_up

from caraway.apps.demo.embedded import data_folder, running_stack
from caraway.client import Client
from caraway.featuresets import Featureset, featureset
from caraway.featuresets import feature as F

__owner__ = "bench@example.com"

CHUNK = 200_000
SAMPLE_SECONDS = 0.2
MIB = 1 << 20


@featureset
class Key:
    """The aggregates of a key's events."""

    key: int
    count_1h: int | None = F(Values.count_1h)
    count_1d: int | None = F(Values.count_1d)
    count_7d: int | None = F(Values.count_7d)
    count_all: int | None = F(Values.count_all)
    sum_1h: float | None = F(Values.sum_1h)
    sum_1d: float | None = F(Values.sum_1d)
    sum_7d: float | None = F(Values.sum_7d)
    sum_all: float | None = F(Values.sum_all)
    average_1h: float | None = F(Values.average_1h)
    average_1d: float | None = F(Values.average_1d)
    average_7d: float | None = F(Values.average_7d)
    average_all: float | None = F(Values.average_all)
    stddev_1h: float | None = F(Values.stddev_1h)
    stddev_1d: float | None = F(Values.stddev_1d)
    stddev_7d: float | None = F(Values.stddev_7d)
    stddev_all: float | None = F(Values.stddev_all)
    max_1h: float | None = F(Values.max_1h)
    max_1d: float | None = F(Values.max_1d)
    max_7d: float | None = F(Values.max_7d)
    max_all: float | None = F(Values.max_all)


FEATURESETS: list[Featureset] = [Key]  # type: ignore[list-item]  # the decorator makes a Featureset of the class


class Memory(threading.Thread):
    """Takes the greatest memory of the JVM and of each task's process of an offline query, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jvm = self.task = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._over.wait(SAMPLE_SECONDS):
            for process in psutil.process_iter():
                try:
                    command = " ".join(process.cmdline())
                    held = process.memory_info().rss / MIB
                    # The command of the JVM has the name of the tasks' program, too.
                    if process.name() == "java":
                        if "caraway.offline" in _parent(process):
                            self.jvm = max(self.jvm, held)
                    elif "pyspark.daemon" in command:
                        self.task = max(self.task, held)
                except psutil.NoSuchProcess:
                    continue

    def stop(self) -> None:
        """End."""
        self._over.set()
        self.join()


def _parent(process: psutil.Process) -> str:
    parent = process.parent()
    return "" if parent is None else " ".join(parent.cmdline())


def main() -> int:
    """Run the benchmark; return 1 if a value is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", nargs="+", type=int, default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--asked", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--hot", action="store_true", help="half of the events and of the rows have one key")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    # The smallest history is divided by key, too.
    os.environ["CARAWAY_OFFLINE__SPARK_BROADCAST_MB"] = "0"
    rng = np.random.default_rng(7)
    rows = pd.DataFrame(
        {"Key.key": _keys(rng, options.asked, options), "at": _instants(rng.integers(0, YEAR_US, options.asked))}
    )
    runs: list[dict[str, Any]] = []
    differs = False
    with data_folder(None) as folder, running_stack(folder) as url, Client(url) as client:
        client.commit("bench", [Events, Values], FEATURESETS)
        sent = 0
        for events in sorted(options.events):
            while sent < events:
                count = min(CHUNK, events - sent)
                # Events come in the order of their times, which are spread over a year.
                at = _instants(YEAR_US * np.arange(sent, sent + count) // max(options.events))
                frame = {"key": _keys(rng, count, options), "value": rng.random(count), "at": at}
                client.log(webhook.name, "events", pd.DataFrame(frame))
                sent += count
            caught_up(url)
            seconds, memory, found = ask(client, rows, "spark")
            runs.append({"events": events, "seconds": seconds, "jvm_mib": memory.jvm, "task_mib": memory.task})
            print(f"{events:,} events: {seconds:.1f} s, JVM {memory.jvm:.0f} MiB, a task {memory.task:.0f} MiB")
            if len(runs) == 1:
                differs = not ask(client, rows, "process")[2].equals(found)
    report = {"bench": "spark_history", "hot": options.hot, "asked": options.asked, "keys": options.keys}
    report |= {"cpus": os.cpu_count(), "runs": runs, "differs": differs}
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 1 if differs else 0


def ask(client: Client, rows: pd.DataFrame, execution: str) -> tuple[float, Memory, Any]:
    """Ask for all features of the rows; return the seconds, the memory and the result."""
    memory = Memory()
    memory.start()
    begun = time.monotonic()
    found = client.training_set([Key.key], FEATURESETS, "at", rows, execution=execution, progress=False).to_arrow()
    seconds = time.monotonic() - begun
    memory.stop()
    return seconds, memory, found


def _keys(rng: np.random.Generator, count: int, options: argparse.Namespace) -> Any:
    keys = rng.integers(0, options.keys, count)
    return np.where(rng.random(count) < 0.5, 0, keys) if options.hot else keys


def _instants(offsets_us: Any) -> Any:
    return pd.to_datetime(BEGIN_US + offsets_us, unit="us", utc=True)


if __name__ == "__main__":
    raise SystemExit(main())
