"""The steps of the demo; each prints on the console what it does."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from caraway.apps.cli.output import out
from caraway.apps.demo.agreement import Agreement
from caraway.apps.demo.display import shown
from caraway.apps.demo.example import ExampleError, Flights
from caraway.apps.demo.figures import quantiles
from caraway.apps.demo.freshness import measure_freshness
from caraway.apps.demo.http import DemoConnection
from caraway.apps.demo.jobs import wait_for_jobs
from caraway.apps.demo.replay import replay
from caraway.apps.demo.settle import AgreementCheck, settle
from caraway.apps.demo.watch import CANDIDATES, Watcher, is_served, wait_until_served
from caraway.client import Client

SHOWN_DISAGREEMENTS = 10
QUERIES = 300
FRESHNESS_RATE = 200.0
FRESHNESS_SECONDS = 10.0
# Seconds for which single events are sent before the measurement. During the replay the JVMs have compiled their code
# for many rows at once. With two cores, compiling the code for single events takes this long.
WARM_UP_SECONDS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A run of the demo: the data and the server. `checked` flights are compared; `speed` is that of `replay`."""

    flights: Flights
    url: str
    tables: Mapping[str, pd.DataFrame]
    speed: float
    checked: int


def commit(demo: Demo) -> None:
    """Commit the definitions. Raises `ExampleError` if the stack has seen these flights already."""
    out.rule("Committing examples/flights/definitions.py", align="left")
    with Client(demo.url) as client:
        client.commit("Flights out of New York", demo.flights.datasets, demo.flights.featuresets)
    wait_for_jobs(demo.url, report=_print)
    _refuse_twice(demo)


def replay_and_watch(demo: Demo) -> None:
    """Send all events, and show meanwhile the features of the newest flights."""
    out.rule("Replaying the events of 2013 through POST /api/v1/log", align="left")
    schedule = demo.tables["schedule"]
    # The tables of airports and aircraft and the events of the first day are sent first, since the JVM compiles each
    # job at its first rows, which takes some seconds.
    early, late = demo.flights.split(demo.tables, schedule["due"].iloc[0] + pd.Timedelta("20h"))
    seconds = replay(demo.flights, demo.url, early, speed=demo.speed, on_slice=lambda *_: None)
    out.print(f"The first {_total(early):,} events, registers and a day, were durable after {seconds:.1f} s.")
    seconds = wait_until_served(demo.flights, demo.url, early["schedule"].iloc[-1])
    out.print(f"Features of that day's last flight were served {seconds:.1f} s later; now the rest.")
    total = _total(late)
    watcher = Watcher(demo.flights, demo.url, schedule)
    watcher.start()
    try:
        with shown(total, watcher) as show:

            def update(events: int, reached: pd.Timestamp) -> None:
                watcher.reached = reached
                show(events, reached)

            seconds = replay(demo.flights, demo.url, late, speed=demo.speed, on_slice=update)
    finally:
        watcher.stop(None)
    out.print(f"Another {total:,} events were durable after {seconds:.1f} s: {total / seconds:,.0f} events/s.")
    if watcher.latencies:
        out.print(f"Queries meanwhile, all features of {CANDIDATES} flights: {quantiles(watcher.latencies)}.")


def check(demo: Demo) -> Agreement:
    """Compare the served values, once they don't change any more, with those that plain pandas computes."""
    out.rule("Comparing with plain pandas", align="left")
    schedule = demo.tables["schedule"]
    chosen = schedule.sample(min(demo.checked, len(schedule)), random_state=7).sort_index()
    started = time.monotonic()
    expected = demo.flights.expected(demo.tables, [str(name) for name in chosen["flight_id"]])
    out.print(
        f"Recomputed {expected.shape[1]} features of {len(chosen):,} flights, each at the time it was due, "
        f"in {time.monotonic() - started:.1f} s."
    )
    started = time.monotonic()
    check = AgreementCheck(flights=demo.flights, schedule=chosen, expected=expected)
    agreement = settle(check, demo.url, report=_print)
    out.print(f"Compared when the values had settled, {time.monotonic() - started:.1f} s later.")
    out.print(
        f"[bold]{agreement.agreeing:,} of {agreement.total:,} values agree[/]: {agreement.identical:,} are equal to "
        f"the bit, {agreement.close:,} within 1e-9."
    )
    for wrong in agreement.disagreements[:SHOWN_DISAGREEMENTS]:
        _print(f"  {wrong}")
    return agreement


def measure(demo: Demo) -> None:
    """Measure the latency of queries, and the freshness of new events."""
    out.rule("Measuring", align="left")
    out.print(f"Query of all features of one flight: {quantiles(query_seconds(demo, QUERIES))}.")
    out.print(f"Warming up: for {WARM_UP_SECONDS:.0f} s the JVMs compile what they run often.")
    measure_freshness(demo.url, rate=FRESHNESS_RATE, seconds=WARM_UP_SECONDS)
    fresh = measure_freshness(demo.url, rate=FRESHNESS_RATE, seconds=FRESHNESS_SECONDS)
    out.print(f"HTTP log until durable, at {fresh.rate:.0f} events/s: {fresh.log}.")
    out.print(f"[bold]HTTP log until served[/], at {fresh.rate:.0f} events/s: {fresh.served}.")
    if fresh.lost:
        out.print(f"{fresh.lost} events were not served in time.", style="red")


def query_seconds(demo: Demo, count: int) -> list[float]:
    """Query all features of one flight after the other, and return the seconds that each query took."""
    flights = demo.tables["schedule"].sample(count, random_state=11, replace=True)
    outputs = [featureset._name for featureset in demo.flights.featuresets]  # noqa: SLF001 (the API's own attribute)
    key = str(demo.flights.key.fqn())
    seconds = []
    with DemoConnection(demo.url) as connection:
        for name, due in zip(flights["flight_id"], flights["due"], strict=True):
            body = {"inputs": [key], "outputs": outputs, "data": {key: [name]}, "timestamps": [due.isoformat()]}
            started = time.perf_counter()
            connection.post("/query", body)
            seconds.append(time.perf_counter() - started)
    return seconds


def _refuse_twice(demo: Demo) -> None:
    """Refuse a stack that holds these flights already: departures are events, and would count twice."""
    with Client(demo.url) as client:
        if is_served(demo.flights, client, demo.tables["schedule"].iloc[0]):
            raise ExampleError(
                f"{demo.url} has seen these flights already, and departures would count twice. "
                "Run the demo with a new data folder: without --data it takes a temporary one."
            )


def _total(tables: Mapping[str, pd.DataFrame]) -> int:
    return sum(map(len, tables.values()))


def _print(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)
