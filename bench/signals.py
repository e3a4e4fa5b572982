"""Metrics, request ids and traces: what they cost of the throughput of queries, in pairs within one run.

    python -m bench signals [--seconds 2] [--pairs 8] [--events 1000] [--connections 8] [--json FILE]

One server (`alone.py`) answers the same load all the time. Its metrics, request ids and traces are switched off and on
again by turns, each for some seconds, so that both ways have the same process, index and hour. "On" traces the default
share of requests, 1%, for a receiver that isn't there. "Off" leaves calls that do nothing, some 50 ns each.

The measure is the processor time of the server for a request: one worker answers as many requests a second as fit into
a second of it, and other programs of the machine hardly change it. The ratio is that of the least times of each way;
the ratio of the requests a second is printed beside it, which other programs do change.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from alone import child, serve
from drivers import ENTITIES
from load import ask, connect, post, together
from query import caraway_requests
from quiet import how_quiet

from caraway.server import app as application
from caraway.server.app import App
from caraway.server.handlers import queries
from caraway.server.tracing.otel import OtelTracer

# The cases of `query.py` that are measured: the one in which a request takes the least, and one with more to do.
CASES = ("1 x 10", "100 x 10")
# Nobody listens at this address.
TRACES, SHARE = "http://127.0.0.1:9/v1/traces", 0.01
TARGET = 1.02
ON, OFF = signal.SIGUSR1, signal.SIGUSR2
WARM_UP_SECONDS = 1.0
# Both ways come first as often as second.
ORDER = ((OFF, ON), (ON, OFF))


class _Nothing:
    """Takes what a counter, a histogram or a context variable takes, and does nothing with it."""

    def __call__(self, *_: object) -> "_Nothing":
        return self

    count = set = reset = __call__

    def workflow(self, name: str | None) -> str:
        """Return a name, as the counts of features do."""
        return name or ""


NOTHING = _Nothing()


class Switch:
    """Switches the signals of an application in this process."""

    def __init__(self, app: App) -> None:
        """Begin with all that the application has, and a tracer."""
        self._app: Any = app
        self._tracer = OtelTracer(TRACES, SHARE, "bench")
        self._modules: dict[tuple[Any, str], tuple[object, object]] = {
            (application, "metrics"): (application.metrics, _silent(application.metrics)),
            (application, "REQUEST_ID"): (application.REQUEST_ID, NOTHING),
            (application, "accepted"): (application.accepted, lambda _: ""),
            (queries, "metrics"): (queries.metrics, _silent(queries.metrics)),
        }
        signal.signal(ON, lambda *_: self.turn(on=True))
        signal.signal(OFF, lambda *_: self.turn(on=False))
        self.turn(on=True)

    def turn(self, *, on: bool) -> None:
        """Switch all of it on or off."""
        self._app._tracer = self._tracer if on else None  # noqa: SLF001 (a server has no such switch)
        for (module, name), (real, silent) in self._modules.items():
            setattr(module, name, real if on else silent)


def _silent(module: Any) -> SimpleNamespace:
    """Return the names of a module with series that count nothing."""
    series = {"REQUESTS", "EXTRACTIONS"}
    return SimpleNamespace(**{**vars(module), **{name: NOTHING for name in series if hasattr(module, name)}})


@dataclass(frozen=True, slots=True)
class Slice:
    """The load of some seconds: requests a second, and microseconds of processor time of the server for each."""

    per_second: float
    us: float


def processor_ns(pid: int) -> int:
    """Return the nanoseconds of processor time of all threads of a process."""
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    times = psutil.Process(pid).cpu_times()
    return round(1e9 * (times.user + times.system))


def switch(url: str, pid: int, way: signal.Signals, request: bytes) -> None:
    """Switch the signals, and wait until an answer shows it: it has an id, or an empty one."""
    os.kill(pid, way)
    deadline = time.monotonic() + 10
    with connect(url) as connection:
        while time.monotonic() < deadline:
            head = ask(connection, request).partition(b"\r\n\r\n")[0].lower()
            found = next(line for line in head.split(b"\r\n") if line.startswith(b"x-request-id:"))
            if bool(found.partition(b":")[2].strip()) == (way is ON):
                return
    raise SystemExit("the server didn't switch its signals")


def measure(url: str, pid: int, requests: Sequence[bytes], options: argparse.Namespace) -> dict[str, list[Slice]]:
    """Return the slices of both ways, in pairs."""
    found: dict[str, list[Slice]] = {"off": [], "on": []}
    together(url, requests, min(WARM_UP_SECONDS, options.seconds), options.connections)
    for _, order in zip(range(options.pairs), cycle(ORDER), strict=False):
        for way in order:
            switch(url, pid, way, requests[0])
            before = processor_ns(pid)
            figures = together(url, requests, options.seconds, options.connections)
            spent = (processor_ns(pid) - before) / 1000
            found["on" if way is ON else "off"].append(Slice(figures.rate, spent / len(figures.latencies)))
    return found


def summary(found: dict[str, list[Slice]]) -> dict[str, float]:
    """Return the figures of a case; `ratio` is the one that counts."""
    off, on = found["off"], found["on"]
    pairs = [mine.us / theirs.us for mine, theirs in zip(on, off, strict=True)]
    return {
        "off_us": round(min(one.us for one in off), 2),
        "on_us": round(min(one.us for one in on), 2),
        "ratio": round(min(one.us for one in on) / min(one.us for one in off), 4),
        "median_of_pairs": round(statistics.median(pairs), 4),
        "off_per_second": round(max(one.per_second for one in off), 1),
        "on_per_second": round(max(one.per_second for one in on), 1),
        "per_second_ratio": round(max(one.per_second for one in off) / max(one.per_second for one in on), 4),
    }


def main() -> None:
    """Measure both ways by turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of a slice")
    parser.add_argument("--pairs", type=int, default=8, help="slices of each way")
    parser.add_argument("--events", type=int, default=1_000, help="greatest number of events in a window")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        serve(options.child, options.events, ENTITIES, made=Switch)
        return
    quiet = how_quiet()
    figures: dict[str, dict[str, float]] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = ["--events", str(options.events)]
    with child(lambda port: [__file__, "--child", str(port), *arguments], environment) as (url, pid):
        for name in CASES:
            address = f"{url}/api/v1/query"
            requests = [post(address, body) for body in caraway_requests(options.events)[name][0]]
            figures[name] = summary(measure(address, pid, requests, options))
    for name, one in figures.items():
        print(
            f"{name}: {one['off_us']:.1f} us a query without, {one['on_us']:.1f} with: {one['ratio']:.3f} "
            f"(median of pairs {one['median_of_pairs']:.3f}; at most {TARGET} wanted); "
            f"{one['off_per_second']:,.0f} and {one['on_per_second']:,.0f} requests a second"
        )
    print(quiet)
    report = {
        "bench": "signals",
        "pairs": options.pairs,
        "seconds": options.seconds,
        "held_up": quiet.part,
        "figures": figures,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
