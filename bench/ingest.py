"""Ingest: events a second through HTTP in batches of 1,000, until durable and until visible in the flights' aggregates.

    python bench/ingest.py [--url URL] [--events 300000] [--senders 2] [--json FILE]

The events are the departures of January 2013, again and again, each time a month later. Bodies are encoded before the
clock starts, so that only the server is measured. Events are "visible" when the last hour, day and week of every
airport and carrier are served as pandas computes them. Without --url a stack is started for the run.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import orjson
import pandas as pd
from rich.table import Table

from caraway.cli.output import out
from caraway.client import Client
from caraway.demo.embedded import server
from caraway.demo.example import WEBHOOK, Flights, load_example
from caraway.demo.http import DemoConnection
from caraway.demo.jobs import wait_for_jobs

BATCH = 1000
POLL_SECONDS = 0.05
TIMEOUT_SECONDS = 300.0
TOLERANCE = 1e-9
HOUR = pd.Timedelta("1h")
LATE_MINUTES = 15
LONG_AGO = pd.Timestamp("2012-01-01T00:00:00Z")


@dataclass(frozen=True)
class Question:
    """The values of one feature that must be served as of a time, by key."""

    input: str
    output: str
    at: pd.Timestamp
    wanted: Mapping[str, float]


def main() -> int:
    """Run the benchmark; return 1 if the events didn't become visible."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="a server that runs already, without departures")
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--senders", type=int, default=2, help="connections that send events")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    flights = load_example()
    events = departures(flights, options.events)
    bodies = encode(events)
    wanted = final_values(events)
    with server(options.url) as url:
        client = Client(url)
        client.commit("Flights out of New York", flights.datasets, flights.featuresets)
        client.close()
        wait_for_jobs(url, report=print)
        warm_up(url, events)
        started = time.monotonic()
        send(url, bodies, options.senders)
        durable = time.monotonic() - started
        visible = wait_until_visible(url, wanted, started)
    report = {
        "bench": "ingest",
        "events": len(events),
        "batch": BATCH,
        "senders": options.senders,
        "durable_seconds": durable,
        "durable_events_per_second": len(events) / durable,
        "visible_seconds": visible,
        "visible_events_per_second": len(events) / visible if visible else None,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
    }
    show(len(events), durable, visible)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0 if visible else 1


def departures(flights: Flights, count: int) -> pd.DataFrame:
    """Return January's departures again and again, each time 31 days later, in order of time."""
    month = flights.tables(months=1)["departures"]
    times = -(-count // len(month))
    rounds = [
        month.assign(
            flight_id=month["flight_id"] + f"+{number}", departed=month["departed"] + number * pd.Timedelta("31d")
        )
        for number in range(times)
    ]
    return pd.concat(rounds, ignore_index=True).head(count).sort_values("departed", ignore_index=True)


def encode(events: pd.DataFrame) -> list[bytes]:
    """Return the bodies of the requests."""
    rows = events.assign(departed=[time.isoformat() for time in events["departed"]])
    return [
        orjson.dumps(
            {
                "webhook": WEBHOOK,
                "endpoint": "departures",
                "data": {name: column.tolist() for name, column in rows.iloc[start : start + BATCH].items()},
            }
        )
        for start in range(0, len(rows), BATCH)
    ]


def final_values(events: pd.DataFrame) -> list[Question]:
    """Return the values that must be served at the end."""
    end = events["departed"].max()
    hour, day, week = (events[events["departed"] >= end - hours * HOUR] for hours in (1, 24, 7 * 24))
    late = (week["delay"] > LATE_MINUTES).groupby(week["carrier"]).mean()
    return [
        Question("Origin.origin", "Origin.mean_delay_1d", end, day.groupby("origin")["delay"].mean().to_dict()),
        Question("Origin.origin", "Origin.departures_1h", end, hour.groupby("origin").size().to_dict()),
        Question("Risk.carrier", "Risk.carrier_late_share_7d", end, late.to_dict()),
    ]


def warm_up(url: str, events: pd.DataFrame) -> None:
    """Send some events of long ago, which no window at the end includes, and wait until they are served."""
    early = events.head(20 * BATCH).assign(
        flight_id="warm-up", origin="warm-up", carrier="warm-up", dest="warm-up", departed=LONG_AGO
    )
    post(url, encode(early))
    wanted = Question("Origin.origin", "Origin.departures_1h", LONG_AGO, {"warm-up": len(early)})
    if wait_until_visible(url, [wanted], time.monotonic()) is None:
        raise SystemExit("the first events did not become visible; see `caraway status`")


def send(url: str, bodies: Sequence[bytes], senders: int) -> None:
    """Send all bodies over some connections and wait until all are durable."""
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(lambda first: post(url, bodies[first::senders]), range(senders)))


def post(url: str, bodies: Sequence[bytes]) -> None:
    """Send bodies over one connection."""
    with DemoConnection(url) as connection:
        for body in bodies:
            connection.post_bytes("/log", body)


def wait_until_visible(url: str, questions: Sequence[Question], started: float) -> float | None:
    """Ask until all answers are right; return the seconds since `started`, None if they never were."""
    with DemoConnection(url) as connection:
        while time.monotonic() - started < TIMEOUT_SECONDS:
            if all(answered(connection, question) for question in questions):
                return time.monotonic() - started
            time.sleep(POLL_SECONDS)
    return None


def answered(connection: DemoConnection, question: Question) -> bool:
    """Return whether the served values are the right ones."""
    keys = list(question.wanted)
    body = {
        "inputs": [question.input],
        "outputs": [question.output],
        "data": {question.input: keys},
        "timestamps": [question.at.isoformat()] * len(keys),
    }
    served = connection.post("/query", body)[question.output]
    return all(
        value is not None and math.isclose(value, wanted, rel_tol=TOLERANCE)
        for value, wanted in zip(served, question.wanted.values(), strict=True)
    )


def show(events: int, durable: float, visible: float | None) -> None:
    """Print a table."""
    table = Table(title=f"{events:,} events through HTTP, {BATCH:,} a request")
    for heading in ("", "seconds", "events/s"):
        table.add_column(heading, justify="right")
    table.add_row("until durable", f"{durable:.1f}", f"{events / durable:,.0f}")
    if visible:
        table.add_row("until visible", f"{visible:.1f}", f"{events / visible:,.0f}")
    else:
        table.add_row("until visible", f"not within {TIMEOUT_SECONDS:.0f}", "")
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
