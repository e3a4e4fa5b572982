"""Ingest: events a second through HTTP in batches of 1,000, until durable and until served.

    python -m bench ingest [--case demo|windows|join] [--keys 1000] [--events 300000] [--senders 2] [--json FILE]

The cases: `demo` is the demo's pipelines over its departures; `windows` one pipeline with five functions over four
windows of each key; `join` an as-of join into an aggregate. Events are "served" when queries as of the last event's
time answer what pandas computes. Bodies are encoded before the clock starts. A first part of the events warms the
compilers of the JVMs up and isn't counted; the time that it takes is reported by itself. The processor time of each
process and group of threads is that of the counted part, and so are memory and the largest backlog of the indexes.
Without --url a stack is started for the run; processor times and memory need that.
"""

import argparse
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from ingest_cases import BATCH, Bodies, Case, Question, demo, joined, windows
from processor_times import processor_seconds, processor_table, resident_bytes
from reports import publish
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.apps.demo.embedded import server
from caraway.apps.demo.http import DemoConnection
from caraway.apps.demo.jobs import wait_for_jobs
from caraway.client import Client

POLL_SECONDS = 0.1
SAMPLE_SECONDS = 1.0
TIMEOUT_SECONDS = 1200.0
TOLERANCE = 1e-9
MEBIBYTE = 1 << 20


def main() -> int:
    """Run the benchmark; return 1 if the events weren't served."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="a server that runs already, without events")
    parser.add_argument("--case", choices=["demo", "windows", "join"], default="demo")
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--keys", type=int, default=1000, help="keys of the case `windows`")
    parser.add_argument("--warm-up", type=int, default=60_000, help="events that are sent first and not counted")
    parser.add_argument("--senders", type=int, default=2, help="connections that send events")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    case = chosen(options.case, options.events, options.keys)
    with server(options.url) as url:
        client = Client(url)
        client.commit(f"The case {options.case}", case.datasets, case.featuresets)
        client.close()
        wait_for_jobs(url, report=print)
        warmed = warm_up(url, case, options.warm_up, options.senders)
        with Watch(url) as watch:
            started = time.monotonic()
            send(url, case.bodies, options.senders)
            durable = time.monotonic() - started
            served = wait_until_served(url, case.questions, started)
        memory = resident_bytes(os.getpid())
    report = {
        "bench": "ingest",
        "case": options.case,
        "events": case.events,
        "keys": options.keys if options.case == "windows" else None,
        "batch": BATCH,
        "senders": options.senders,
        "warm_up_events": options.warm_up,
        "warm_up_seconds": warmed,
        "durable_seconds": durable,
        "durable_events_per_second": case.events / durable,
        "served_seconds": served,
        "served_events_per_second": case.events / served if served else None,
        "largest_backlog": watch.largest_backlog,
        "memory_mib": memory / MEBIBYTE,
        "us_per_event": {f"{role}: {group}": 1e6 * s / case.events for (role, group), s in watch.spent.most_common()},
        "load_average": os.getloadavg()[0],
    }
    show(report, watch.spent, case.events)
    publish(report, options.json)
    return 0 if served else 1


def chosen(name: str, events: int, keys: int) -> Case:
    """Return the case of a name."""
    if name == "demo":
        return demo(events)
    return windows(events, keys) if name == "windows" else joined(events)


class Watch:
    """Measures processor time, and the largest backlog of the indexes, from its beginning to its end."""

    def __init__(self, url: str) -> None:
        """Ask the server at `url`."""
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._before: Counter[tuple[str, str]] = Counter()
        self.spent: Counter[tuple[str, str]] = Counter()
        self.largest_backlog = 0

    def __enter__(self) -> Self:
        self._before = processor_seconds(os.getpid())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self.spent = processor_seconds(os.getpid()) - self._before

    def _sample(self) -> None:
        with DemoConnection(self._url) as connection:
            while not self._stopping.wait(SAMPLE_SECONDS):
                indexes = connection.get("/status")["index"]["indexes"]
                self.largest_backlog = max(self.largest_backlog, sum(index["lag"] or 0 for index in indexes))


def warm_up(url: str, case: Case, count: int, senders: int) -> float:
    """Send the case's first bodies and `count` events; return the seconds until they are served."""
    started = time.monotonic()
    with DemoConnection(url) as connection:
        for body in case.first:
            connection.post_bytes("/log", body)
    send(url, case.warm_up(count), senders)
    seconds = wait_until_served(url, case.warmed(count), started)
    if seconds is None:
        raise SystemExit("the first events weren't served; see `caraway status`")
    return seconds


def send(url: str, bodies: Bodies, senders: int) -> None:
    """Send all bodies over some connections and wait until all are durable."""
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(lambda first: post(url, bodies, first, senders), range(senders)))


def post(url: str, bodies: Bodies, first: int, step: int) -> None:
    """Send each `step`-th body over one connection."""
    file = bodies.file.fileno()
    with DemoConnection(url) as connection:
        for start, length in bodies.spans[first::step]:
            connection.post_bytes("/log", os.pread(file, length, start))


def wait_until_served(url: str, questions: Sequence[Question], started: float) -> float | None:
    """Ask until all answers are right; return the seconds since `started`, None if they never were."""
    waiting = list(questions)
    with DemoConnection(url) as connection:
        while time.monotonic() - started < TIMEOUT_SECONDS:
            # Only the first question without the right answer is asked again, so that asking costs little.
            while waiting and answered(connection, waiting[0]):
                waiting.pop(0)
            if not waiting:
                return time.monotonic() - started
            time.sleep(POLL_SECONDS)
    return None


def answered(connection: DemoConnection, question: Question) -> bool:
    """Return whether the served values are the right ones. A single key is asked for first, which costs little."""
    keys = list(question.wanted)
    return answered_for(connection, question, keys[:1]) and answered_for(connection, question, keys)


def answered_for(connection: DemoConnection, question: Question, keys: Sequence[object]) -> bool:
    """Return whether the served values of some keys are the right ones."""
    body = {
        "inputs": [question.input],
        "outputs": [question.output],
        "data": {question.input: keys},
        "timestamps": [question.at.isoformat()] * len(keys),
    }
    served = connection.post("/query", body)[question.output]
    return all(
        value is not None and math.isclose(value, question.wanted[key], rel_tol=TOLERANCE)
        for key, value in zip(keys, served, strict=True)
    )


def show(report: dict[str, object], spent: Counter[tuple[str, str]], events: int) -> None:
    """Print the tables."""
    table = Table(title=f"{events:,} events through HTTP, {BATCH:,} a request, case {report['case']}")
    for heading in ("until", "seconds", "events/s"):
        table.add_column(heading, justify="right")
    for name in ("durable", "served"):
        seconds, rate = report[f"{name}_seconds"], report[f"{name}_events_per_second"]
        table.add_row(name, f"{seconds:.1f}", f"{rate:,.0f}") if seconds else table.add_row(name, "never", "")
    out.print(table)
    out.print(processor_table("Processor time of an event in microseconds", "us", spent, 1e6 / events, 8))
    backlog, memory = report["largest_backlog"], report["memory_mib"]
    out.print(f"Largest backlog of the indexes: {backlog:,} records. Memory: {memory:,.0f} MiB.")


if __name__ == "__main__":
    sys.exit(main())
