"""Metrics, request ids and traces: what they cost of the throughput of queries, by turns within one run.

    python -m bench signals [--seconds 2] [--rounds 8] [--events 1000] [--connections 8] [--json FILE]

One server (`alone.py`) answers the same load all the time. It has no signals, metrics only, or metrics, request ids and
traces, by turns, each for some seconds, so that all ways have the same process, index and hour. "All" traces the
default share of requests, 1%, for a receiver that isn't there. "None" leaves calls that do nothing, some 50 ns each.

The measure is the processor time of the server for a request: one worker answers as many requests a second as fit into
a second of it, and other programs of the machine hardly change it. The ratio is that of the least times of each way;
the requests a second are printed beside it, which other programs do change.
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
from itertools import cycle, permutations
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
NONE, METRICS, ALL = "none", "metrics", "all"
WAYS = {NONE: signal.SIGUSR2, METRICS: signal.SIGURG, ALL: signal.SIGUSR1}
# The ids of requests in answers tell the way: they have none, this one, or one of their own.
SHOWN_ID = "m"
WARM_UP_SECONDS = 1.0
# Each way comes in each place as often as the others.
ORDER = tuple(permutations(WAYS))


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
        self._metrics = [(module, module.metrics, _silent(module.metrics)) for module in (application, queries)]
        self._ids = application.REQUEST_ID, application.accepted
        for way, number in WAYS.items():
            signal.signal(number, lambda *_, way=way: self.turn(way))  # type: ignore[misc]
        self.turn(ALL)

    def turn(self, way: str) -> None:
        """Switch to one of the ways."""
        self._app._tracer = self._tracer if way is ALL else None  # noqa: SLF001 (a server has no such switch)
        shown = SHOWN_ID if way is METRICS else ""
        module: Any = application
        module.REQUEST_ID, module.accepted = self._ids if way is ALL else (NOTHING, lambda _: shown)
        for module, real, silent in self._metrics:
            module.metrics = silent if way is NONE else real


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


def switch(url: str, pid: int, way: str, request: bytes) -> None:
    """Switch the signals, and wait until the id in an answer shows it."""
    os.kill(pid, WAYS[way])
    deadline = time.monotonic() + 10
    with connect(url) as connection:
        while time.monotonic() < deadline:
            head = ask(connection, request).partition(b"\r\n\r\n")[0].lower()
            found = next(line for line in head.split(b"\r\n") if line.startswith(b"x-request-id:"))
            shown = found.partition(b":")[2].strip().decode()
            if way == {"": NONE, SHOWN_ID: METRICS}.get(shown, ALL):
                return
    raise SystemExit("the server didn't switch its signals")


def measure(url: str, pid: int, requests: Sequence[bytes], options: argparse.Namespace) -> dict[str, list[Slice]]:
    """Return the slices of all ways, in rounds."""
    found: dict[str, list[Slice]] = {way: [] for way in WAYS}
    together(url, requests, min(WARM_UP_SECONDS, options.seconds), options.connections)
    for _, order in zip(range(options.rounds), cycle(ORDER), strict=False):
        for way in order:
            switch(url, pid, way, requests[0])
            before = processor_ns(pid)
            figures = together(url, requests, options.seconds, options.connections)
            spent = (processor_ns(pid) - before) / 1000
            found[way].append(Slice(figures.rate, spent / len(figures.latencies)))
    return found


def summary(found: dict[str, list[Slice]]) -> dict[str, float]:
    """Return the figures of a case: of each way, and its ratio to that without signals."""
    figures: dict[str, float] = {}
    for way, slices in found.items():
        pairs = [mine.us / theirs.us for mine, theirs in zip(slices, found[NONE], strict=True)]
        figures |= {
            f"{way}_us": round(min(one.us for one in slices), 2),
            f"{way}_ratio": round(min(one.us for one in slices) / min(one.us for one in found[NONE]), 4),
            f"{way}_median_of_rounds": round(statistics.median(pairs), 4),
            f"{way}_per_second": round(max(one.per_second for one in slices), 1),
        }
    return figures


def main() -> None:
    """Measure all ways by turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of a slice")
    parser.add_argument("--rounds", type=int, default=8, help="slices of each way")
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
        print(f"{name}: {one['none_us']:.1f} us a query without signals, {one['none_per_second']:,.0f} a second")
        for way, wanted in ((METRICS, f"; at most {TARGET} wanted"), (ALL, "")):
            per_second = f"{one[f'{way}_per_second']:,.0f} a second"
            median = f"median of rounds {one[f'{way}_median_of_rounds']:.3f}{wanted}"
            print(f"  {way}: {one[f'{way}_us']:.1f} us, {one[f'{way}_ratio']:.3f} ({median}), {per_second}")
    print(quiet)
    report = {
        "bench": "signals",
        "rounds": options.rounds,
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
