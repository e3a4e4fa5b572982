"""Offline queries: features of many rows as of the rows' times.

    python -m bench offline [--months 12] [--compared 20000] [--executions process spark] [--json FILE]

The demo's flights of 2013 go through a whole stack. Then an offline query asks for all features of every flight as of
its scheduled departure, once they are archived. The time is that from the request until the client has all features,
and includes the start of the query's process. With several executions the query is asked once for each, and the bench
fails if their results aren't the same to the bit. The values of `--compared` flights, drawn at random (0: all), are
compared with those that plain pandas computes.
"""

import argparse
import json
import os
import time
from pathlib import Path

import pandas as pd

from caraway.apps.demo.agreement import compare
from caraway.apps.demo.embedded import data_folder, running_stack
from caraway.apps.demo.example import Flights, load_example
from caraway.apps.demo.http import DemoConnection
from caraway.apps.demo.jobs import wait_for_jobs
from caraway.apps.demo.replay import replay
from caraway.client import Client

POLL_SECONDS = 0.1
TIMEOUT_SECONDS = 1800.0


def main() -> int:
    """Run the benchmark; return 1 if a value is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--compared", type=int, default=20_000)
    parser.add_argument("--executions", nargs="+", choices=["process", "spark"], default=["process"])
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    flights = load_example()
    tables = flights.tables(months=options.months)
    with data_folder(None) as folder, running_stack(folder) as url:
        with Client(url) as client:
            client.commit("flights", flights.datasets, flights.featuresets)
        wait_for_jobs(url, report=print)
        durable = replay(flights, url, tables, speed=0, on_slice=lambda *_: None)
        print(f"{sum(map(len, tables.values())):,} events were durable after {durable:.1f} s")
        caught_up(url)
        schedule = tables["schedule"]
        seconds: dict[str, float] = {}
        found: dict[str, pd.DataFrame] = {}
        for execution in options.executions:
            seconds[execution], found[execution] = timed_query(url, flights, schedule, execution)
            rate = len(schedule) / seconds[execution]
            print(f"{len(schedule):,} flights, {execution}: {seconds[execution]:.1f} s, {rate:,.0f} rows/s")
    served = found[options.executions[0]]
    for execution, frame in found.items():
        pd.testing.assert_frame_equal(frame, served, check_exact=True, obj=execution)
    wrong = compared(flights, tables, schedule, served, options.compared or len(schedule))
    report = {
        "bench": "offline",
        "case": "flights",
        "rows": len(schedule),
        "seconds": seconds,
        "events": sum(map(len, tables.values())),
        "wrong": wrong,
        "cpus": os.cpu_count(),
    }
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 1 if wrong else 0


def caught_up(url: str) -> None:
    """Wait until queries see all rows, and until the archive has all rows of each topic.

    Each table is looked at until it has once had everything, since heartbeats go on to write markers to the topics.
    """
    with Client(url) as client:
        client.wait(timeout=TIMEOUT_SECONDS)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    behind = {"all"}
    done: set[str] = set()
    with DemoConnection(url) as connection:
        while behind:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the archive hasn't caught up in time: {', '.join(sorted(behind))}")
            tables = connection.get("/archive")["tables"]
            done |= {table["topic"] for table in tables if table["messages"] == 0}
            behind = {table["topic"] for table in tables} - done
            time.sleep(POLL_SECONDS)


def timed_query(url: str, flights: Flights, schedule: pd.DataFrame, execution: str) -> tuple[float, pd.DataFrame]:
    """Ask for all features of the flights; return the seconds that it took, and the features."""
    rows = pd.DataFrame({str(flights.key.fqn()): schedule["flight_id"], "due": schedule["due"]})
    with Client(url) as client:
        started = time.monotonic()
        found = client.training_set(
            [flights.key], flights.featuresets, "due", rows, execution=execution, progress=False
        )
        frame = found.to_pandas()
        return time.monotonic() - started, frame


def compared(
    flights: Flights, tables: dict[str, pd.DataFrame], schedule: pd.DataFrame, served: pd.DataFrame, count: int
) -> int:
    """Return how many values of some flights differ from those that plain pandas computes."""
    chosen = schedule.sample(min(count, len(schedule)), random_state=7).sort_index()
    ids = [str(name) for name in chosen["flight_id"]]
    started = time.monotonic()
    expected = flights.expected(tables, ids)
    print(f"pandas computed {len(chosen):,} flights in {time.monotonic() - started:.1f} s")
    found = served.loc[chosen.index].reset_index(drop=True)[list(expected.columns)]
    agreement = compare(found, expected, ids)
    print(f"{agreement.agreeing:,} of {agreement.total:,} values agree, {agreement.identical:,} to the bit")
    for wrong in agreement.disagreements[:10]:
        print(wrong)
    return len(agreement.disagreements)


if __name__ == "__main__":
    raise SystemExit(main())
