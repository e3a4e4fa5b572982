"""Idle jobs: what they cost while nothing comes, and how soon an event of one of them is served.

    python -m bench idle [--jobs 300] [--seconds 60] [--events 60] [--json FILE]

Each job is an as-of join into an aggregate, with a topic of events of its own; all join one table. The processor time
of each process and group of threads, and memory, are those of an idle stack, from half a minute after the last job has
started. Then events are logged one at a time, each to another job, after a pause in which its job was idle; the time of
an event runs from its log request until a query returns it.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from processor_times import processor_seconds, processor_table, resident_bytes
from reports import publish

from caraway import Count, F, Max, connectors, dataset, featureset, field, meta, pipeline
from caraway.apps.cli.output import out
from caraway.apps.demo.embedded import server
from caraway.apps.demo.figures import quantiles
from caraway.apps.demo.http import DemoConnection
from caraway.apps.demo.jobs import wait_for_jobs
from caraway.client import Client
from caraway.datasets import Dataset
from caraway.dtypes import Continuous
from caraway.featuresets import Featureset
from caraway.lib.params import inputs

OWNER = "bench@caraway.example"
WEBHOOK = "idle"
MEBIBYTE = 1 << 20
# The jobs that one commit adds, so that an error names few of them.
AT_ONCE = 50
SETTLE_SECONDS = 30.0
TIMEOUT_SECONDS = 30.0

webhook = connectors.Webhook(name=WEBHOOK)


def main() -> int:
    """Run the benchmark; return 1 if an event wasn't served."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="a server that runs already; processor times need one of their own")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement of the idle stack")
    parser.add_argument("--events", type=int, default=60, help="events that are logged one at a time")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    with server(options.url) as url:
        commits = committed(url, options.jobs)
        time.sleep(SETTLE_SECONDS)
        before, started = processor_seconds(os.getpid()), time.monotonic()
        time.sleep(options.seconds)
        spent, seconds = processor_seconds(os.getpid()) - before, time.monotonic() - started
        memory = resident_bytes(os.getpid())
        served = [served_after(url, number, options.jobs) for number in range(options.events)]
    lost = served.count(None)
    if lost == len(served):
        raise TimeoutError(f"none of {lost} events was served within {TIMEOUT_SECONDS:.0f} s")
    freshness = quantiles([value for value in served if value is not None])
    report: dict[str, Any] = {
        "bench": "idle",
        "jobs": options.jobs,
        "commit_seconds": [round(value, 2) for value in commits],
        "share_of_a_core": sum(spent.values()) / seconds,
        "shares": {f"{role}: {group}": value / seconds for (role, group), value in spent.most_common()},
        "memory_mib": memory / MEBIBYTE,
        "log_to_served": freshness.as_json(),
        "lost": lost,
    }
    show(report, spent, seconds)
    publish(report, options.json)
    return 1 if lost else 0


def committed(url: str, jobs: int) -> list[float]:
    """Commit the jobs, some at a time; return the seconds that each commit took until its answer."""
    makers = _makers()
    datasets: list[Dataset] = [makers]
    featuresets: list[Featureset] = []
    numbers, seconds = iter(range(jobs)), []
    client = Client(url)
    while added := list(islice(numbers, AT_ONCE)):
        for number in added:
            events, largest, features = _job(number, makers)
            datasets += [events, largest]
            featuresets.append(features)
        started = time.monotonic()
        client.commit(f"{len(featuresets)} jobs", datasets, featuresets)
        seconds.append(time.monotonic() - started)
        wait_for_jobs(url, report=out.print)
    client.close()
    return seconds


def served_after(url: str, number: int, jobs: int) -> float | None:
    """Log an event of a job and return the seconds until a query has its value, None if it never has."""
    # Neighbours in time are far apart among the jobs, so that each job was idle before.
    job = number * 7 % jobs
    key = f"key-{number}"
    event = {"user": key, "maker": "m1", "amount": number, "at": datetime.now(UTC).isoformat()}
    question = {"inputs": [f"Of{job}.user"], "outputs": [f"Of{job}.count"], "data": {f"Of{job}.user": [key]}}
    with DemoConnection(url) as connection:
        # The question is planned before the clock starts.
        connection.post("/query", question)
        started = time.perf_counter()
        connection.post("/log", {"webhook": WEBHOOK, "endpoint": f"events{job}", "data": [event]})
        while time.perf_counter() - started < TIMEOUT_SECONDS:
            if connection.post("/query", question)[f"Of{job}.count"] == [1]:
                return time.perf_counter() - started
            time.sleep(0.001)
    return None


def _makers() -> Dataset:
    class Makers:
        maker: str = field(key=True)
        country: str
        at: datetime = field(timestamp=True)

    source = connectors.source(webhook.endpoint("makers"), disorder="1h", cdc="upsert")
    return meta(owner=OWNER)(source(dataset(index=True)(Makers)))


def _job(number: int, makers: Dataset) -> tuple[Dataset, Dataset, Featureset]:
    """Return a dataset of events, one with a job that joins and aggregates them, and the feature that reads it."""

    class Events:
        user: str
        maker: str
        amount: int
        at: datetime = field(timestamp=True)

    Events.__name__ = Events.__qualname__ = f"Events{number}"
    source = connectors.source(webhook.endpoint(f"events{number}"), disorder="1h", cdc="append")
    events = meta(owner=OWNER)(source(dataset(Events)))

    class Largest:
        user: str = field(key=True)
        count: int
        largest: int | None
        at: datetime

        @pipeline
        @inputs(events, makers)
        def by_user(cls, events: Any, makers: Any) -> Any:
            known = events.join(makers, how="left", on=["maker"], fields=["country"])
            return known.groupby("user").aggregate(
                count=Count(window=Continuous("1h")), largest=Max(of="amount", window=Continuous("1h"))
            )

    Largest.__name__ = Largest.__qualname__ = f"Largest{number}"
    largest = meta(owner=OWNER)(dataset(index=True)(Largest))

    class Of:
        user: str
        count: int = F(largest.count, default=0)

    Of.__name__ = Of.__qualname__ = f"Of{number}"
    return events, largest, meta(owner=OWNER)(featureset(Of))


def show(report: Mapping[str, Any], spent: Counter[tuple[str, str]], seconds: float) -> None:
    """Print the table and the figures beside it."""
    title = f"{report['jobs']} idle jobs: share of one core, in percent"
    out.print(processor_table(title, "%", spent, 100 / seconds, 10))
    out.print(f"All: {100 * report['share_of_a_core']:.0f}% of a core. Memory: {report['memory_mib']:,.0f} MiB.")
    out.print(f"Commits of {AT_ONCE} jobs, in seconds: {report['commit_seconds']}")
    out.print(f"From the log request to the served value, in milliseconds: {report['log_to_served']}")


if __name__ == "__main__":
    sys.exit(main())
