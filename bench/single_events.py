"""Log requests of one event: the processor time of each, by process and group of threads, at a steady rate.

    python -m bench single_events [--rate 500] [--seconds 20] [--warm-up 40] [--rounds 3] [--json FILE]

The events flow through one aggregate over windows of an hour, six and a day. Requests are written to a few sockets at
their due times by the functions of `load.py`, so that the sender takes little of the machine. Before each
round of log requests comes one of requests for the server's health at the same rate; they cost what HTTP costs.
"""

import argparse
import os
import selectors
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from freshness import graph
from load import connect, get, missing, more, post
from processor_times import processor_seconds, processor_table
from reports import publish

from caraway.apps.cli.output import out
from caraway.apps.demo.embedded import server
from caraway.apps.demo.example import load_example
from caraway.apps.demo.figures import Quantiles, quantiles
from caraway.apps.demo.freshness import Run
from caraway.apps.demo.jobs import wait_for_jobs
from caraway.client import Client
from caraway.client.discovery import find_server
from caraway.client.response import V1_API

CONNECTIONS = 8
MICROSECONDS = 1e6
# The seconds after which a request without an answer ends the benchmark.
TIMEOUT_SECONDS = 30.0
GROUPS = 8

Request = Callable[[int], bytes]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each round")
    parser.add_argument("--warm-up", type=float, default=40.0, help="seconds of log requests before the first round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the cheapest counts")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    flights = load_example()
    datasets, featuresets = graph(flights, everything=False, joined=False)
    with server("") as url:
        client = Client(url)
        client.commit("Flights out of New York", datasets, featuresets)
        client.close()
        wait_for_jobs(url, report=print)
        log, health = _logs(url), get(f"{url}{V1_API}/health")
        _send(url, log, options.rate, options.warm_up)
        rounds = []
        for _ in range(options.rounds):
            idle = _round(url, lambda _: health, options.rate, options.seconds)
            rounds.append((idle, _round(url, log, options.rate, options.seconds)))
    (_, health_spent), (times, spent) = min(rounds, key=lambda pair: pair[1][1].total())
    requests = int(options.rate * options.seconds)
    scale = MICROSECONDS / requests
    out.print(processor_table(f"Log requests of one event, {options.rate:.0f}/s", "us/request", spent, scale, GROUPS))
    main_thread = ("server", "main thread")
    report: dict[str, Any] = {
        "bench": "single_events",
        "rate": options.rate,
        "requests": requests,
        "log_to_durable": times.as_json(),
        "health_main_thread_us": round(health_spent[main_thread] * scale, 1),
        "main_thread_us": round(spent[main_thread] * scale, 1),
        "server_us": round(sum(value for (role, _), value in spent.items() if role == "server") * scale, 1),
        "total_us": round(spent.total() * scale, 1),
        "by_threads_us": {f"{role}: {group}": round(value * scale, 1) for (role, group), value in spent.most_common()},
    }
    publish(report, options.json)
    return 0


def _logs(url: str) -> Request:
    run, token = Run("~single"), find_server(url).token
    return lambda number: post(f"{url}{V1_API}/log", orjson.dumps(run.request([number])), token=token)


def _round(url: str, request: Request, rate: float, seconds: float) -> tuple[Quantiles, Counter[tuple[str, str]]]:
    """Send requests at a rate, and return their times, and the processor seconds that the stack took meanwhile."""
    before = processor_seconds(os.getpid())
    times = _send(url, request, rate, seconds)
    return quantiles(times), processor_seconds(os.getpid()) - before


def _send(url: str, request: Request, rate: float, seconds: float) -> list[float]:
    """Send requests at their due times, and return the seconds from each due time to its answer.

    A connection has one request under way; a request for which none is free waits. Connections take turns, because the
    server closes one that is idle.
    """
    free = deque(connect(url) for _ in range(CONNECTIONS))
    # The due time of the request that is under way on a connection, and what has come of its answer.
    state: dict[socket.socket, tuple[float, bytes]] = {}
    times: list[float] = []
    count, sent, started = int(rate * seconds), 0, time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for connection in free:
            selector.register(connection, selectors.EVENT_READ)
        while sent < count or state:
            now = time.perf_counter()
            while free and sent < count and (due := started + sent / rate) <= now:
                connection = free.popleft()
                state[connection] = (due, b"")
                connection.sendall(request(sent))
                sent += 1
            pause = started + sent / rate - time.perf_counter() if free and sent < count else TIMEOUT_SECONDS
            ready = selector.select(max(0.0, pause))
            if not ready and pause == TIMEOUT_SECONDS:
                raise TimeoutError(f"{len(state)} requests have no answer after {TIMEOUT_SECONDS:.0f} s")
            for key, _ in ready:
                connection = key.fileobj  # type: ignore[assignment]
                due, answer = state[connection]
                answer += more(connection)
                if missing(answer) > 0:
                    state[connection] = (due, answer)
                    continue
                times.append(time.perf_counter() - due)
                del state[connection]
                free.append(connection)
        for connection in free:
            connection.close()
    return times


if __name__ == "__main__":
    sys.exit(main())
