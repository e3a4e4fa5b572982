"""Freshness: the time from a log request to the served value, at a steady rate.

    python bench/freshness.py [--url URL] [--rate 500] [--together 1] [--seconds 30] [--all] [--jobs 20] [--joined]
                              [--json FILE]

Each event is logged by a request of its own at the time that the rate sets, even if earlier answers are late (open
loop); with --together, by one request with some others. A second connection asks the query endpoint for the value of
each event until it is served. Without --url a stack is started for the run.

The events flow through one pipeline with an aggregate over windows of an hour, six and a day; with --joined through a
join and an aggregate. With --all the other pipelines of the flights run as well, of which three more read the events.
--jobs sets the number of all jobs; half of the further ones join, and all read the same topic.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from more_jobs import JOINED, SINGLE, by_airport, by_maker, spread
from reports import publish
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.apps.demo.embedded import server
from caraway.apps.demo.example import Flights, load_example
from caraway.apps.demo.freshness import Freshness, measure_freshness
from caraway.apps.demo.jobs import wait_for_jobs
from caraway.client import Client
from caraway.datasets import Dataset
from caraway.featuresets import Featureset

# Seconds before the measurement: on two cores the JIT compilers of both JVMs compete with the jobs for half a minute
# after a start.
WARM_UP_SECONDS = 45.0

FLIGHTS_JOBS = 5


def main() -> int:
    """Run the benchmark; return 1 if events got lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="a server that runs already")
    parser.add_argument("--rate", type=float, default=500.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of the measurement")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds to run before the measurement")
    parser.add_argument("--every", type=int, default=1, help="watch each Nth event")
    parser.add_argument("--together", type=int, default=1, help="events of one request")
    parser.add_argument("--all", action="store_true", help="run all pipelines of the flights")
    parser.add_argument("--jobs", type=int, default=0, help="jobs in all; the flights themselves have five")
    parser.add_argument("--joined", action="store_true", help="measure through a join and an aggregate")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    flights = load_example()
    everything = options.all or options.jobs > 0
    datasets, featuresets = graph(flights, everything=everything, joined=options.joined)
    own = FLIGHTS_JOBS + options.joined if everything else 1
    datasets += spread(flights, max(0, options.jobs - own))
    watched = JOINED if options.joined else SINGLE
    with server(options.url) as url:
        client = Client(url)
        client.commit("Flights out of New York", datasets, featuresets)
        client.close()
        started = time.monotonic()
        wait_for_jobs(url, report=print)
        start_seconds = time.monotonic() - started
        measure = partial(
            measure_freshness,
            url,
            rate=options.rate,
            watched=watched,
            every=options.every,
            together=options.together,
        )
        measure(seconds=options.warm_up)
        result = measure(seconds=options.seconds)
    report = {
        "bench": "freshness",
        "rate": result.rate,
        "together": options.together,
        "seconds": options.seconds,
        "jobs": max(own, options.jobs),
        "joined": options.joined,
        "warm_up_seconds": options.warm_up,
        "watched_one_of": options.every,
        "jobs_started_after": round(start_seconds, 1),
        "lost": result.lost,
        "log_to_durable": result.log.as_json(),
        "log_to_served": result.served.as_json(),
    }
    show(result)
    publish(report, options.json)
    return 1 if result.lost else 0


def graph(flights: Flights, *, everything: bool, joined: bool) -> tuple[list[Dataset], list[Featureset]]:
    """Return the definitions to commit: only the measured pipeline, or that and all others of the flights."""
    definitions = flights.definitions
    further, featuresets = by_maker(flights) if joined else ([], by_airport(flights))
    if everything:
        return [*flights.datasets, *further], [*flights.featuresets, *featuresets]
    measured = [definitions.Planes, *further] if joined else [definitions.OriginDelays]
    return [definitions.Departures, *measured], featuresets


def show(result: Freshness) -> None:
    """Print a table."""
    table = Table(title=f"HTTP log to served value, {result.rate:.0f} events/s")
    for heading in ("ms", "p50", "p90", "p99", "max", "events"):
        table.add_column(heading, justify="right")
    for name, q in (("until durable", result.log), ("until served", result.served)):
        figures = (f"{value:.1f}" for value in (q.p50_ms, q.p90_ms, q.p99_ms, q.max_ms))
        table.add_row(name, *figures, str(q.count))
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
