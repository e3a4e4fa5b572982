"""Metrics, request ids and traces: what they cost of the throughput of queries, request by request within one run.

    python -m bench signals [--seconds 30] [--events 1000] [--connections 8] [--json FILE]

One server (`alone.py`) answers the same load all the time. For each request it draws whether it has no signals, metrics
only, or metrics, request ids and traces, so that all ways have the same process, index and moment. "All" traces the
default share of requests, 1%, for a receiver that isn't there. A way that is off leaves some calls that do nothing, of
some 100 ns each.

The measure is the processor time of the thread that answers, which other programs of the machine change by more than
metrics cost. Means of many thousands of requests that are drawn in turns even this out: a way's cost is the difference
of the means, without the longest thousandth of all requests. One worker answers as many requests a second as fit into a
second of processor time, so the ratio is that of the processor time of the whole process for a request of many
connections at once, with a way's cost and without. The standard error of the ratio is printed beside it.
"""

import argparse
import json
import logging
import os
import random
import signal
import statistics
import sys
import time
from array import array
from collections.abc import Collection
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import psutil
from alone import child, serve
from drivers import ENTITIES
from load import post, together
from query import caraway_requests
from quiet import how_quiet
from reports import publish

from caraway.apps.server import app as application
from caraway.apps.server.app import App
from caraway.apps.server.handlers import queries
from caraway.apps.server.tracing.otel import OtelTracer

# The cases of `query.py` that are measured: the one in which a request takes the least, and one with more to do.
CASES = ("1 x 10", "100 x 10")
# Nobody listens at this address.
TRACES, SHARE = "http://127.0.0.1:9/v1/traces", 0.01
TARGET = 1.02
NONE, METRICS, ALL = WAYS = "none", "metrics", "all"
WARM_UP_SECONDS = 3.0
ANSWER_SECONDS = 10.0
# Longer requests than this part of all were held up by something else.
LONGEST = 0.999


class Switch:
    """Draws the signals of each request of an application in this process, and measures what it takes."""

    def __init__(self, app: App, found: Path) -> None:
        """Begin; a signal writes what was measured to the file `found`, and begins anew."""
        # The exporter logs each trace that nobody takes.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self.way = NONE
        patched: Any = app
        patched._tracer = _Switched(self, OtelTracer(TRACES, SHARE, "bench"), (ALL,))  # noqa: SLF001 (no server is switched)
        self._answer, patched.__rsgi__ = app.__rsgi__, self._measured
        names: Any = application
        names.REQUEST_ID, made = _Switched(self, names.REQUEST_ID, (ALL,)), names.accepted
        names.accepted = lambda given: made(given) if self.way is ALL else ""
        for module in (application, queries):
            module.metrics = _switched(self, module.metrics)  # type: ignore[attr-defined]
        self._found = found
        self._begin()
        signal.signal(signal.SIGUSR1, lambda *_: self._end())

    def _begin(self) -> None:
        self._times = {way: array("d") for way in WAYS}

    def _end(self) -> None:
        times = {way: times.tolist() for way, times in self._times.items()}
        self._begin()
        part = self._found.with_suffix(".part")
        part.write_text(json.dumps(times))
        part.rename(self._found)

    async def _measured(self, scope: Any, exchange: Any) -> None:
        way = self.way = random.choice(WAYS)
        begun = time.thread_time()
        await self._answer(scope, exchange)
        self._times[way].append(time.thread_time() - begun)


class _Nothing:
    """Has the methods of metrics, request ids and tracers, which do nothing."""

    def count(self, *_: object) -> None: ...

    def workflow(self, name: str | None) -> str:
        return name or ""

    def set(self, _: str) -> None: ...

    def reset(self, _: object) -> None: ...

    def begin(self, *_: object) -> None: ...


class _Switched:
    """Passes calls to the real object, or to one that does nothing: so these ways differ by what the real one does."""

    def __init__(self, switch: Switch, real: Any, ways: Collection[str]) -> None:
        """Pass the calls of requests of some ways to the real object."""
        self._switch = switch
        self._of = {way: real if way in ways else _Nothing() for way in WAYS}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of[self._switch.way], name)


def _switched(switch: Switch, module: Any) -> SimpleNamespace:
    """Return the names of a module of metrics, with counts that are switched."""
    series = {
        name: _Switched(switch, vars(module)[name], (METRICS, ALL))
        for name in ("REQUESTS", "EXTRACTIONS")
        if hasattr(module, name)
    }
    return SimpleNamespace(**{**vars(module), **series})


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def measured(pid: int, found: Path) -> dict[str, list[float]]:
    """Return the seconds of the requests since the last call, by way."""
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not found.exists():
        if time.monotonic() > deadline:
            raise SystemExit("the server didn't write what it measured")
        time.sleep(0.01)
    times: dict[str, list[float]] = json.loads(found.read_text())
    found.unlink()
    return times


def summary(times: dict[str, list[float]], us: float) -> dict[str, float]:
    """Return the figures of a case: what each way costs, and its part of the microseconds of a request."""
    ordered = sorted(chain.from_iterable(times.values()))
    longest = ordered[int(LONGEST * (len(ordered) - 1))]
    kept = {way: [1e6 * each for each in some if each <= longest] for way, some in times.items()}
    none_us = us - sum(statistics.fmean(some) - statistics.fmean(kept[NONE]) for some in kept.values()) / len(kept)
    figures: dict[str, float] = {"requests": len(ordered), "none_us": round(none_us, 2)}
    for way in (METRICS, ALL):
        cost = statistics.fmean(kept[way]) - statistics.fmean(kept[NONE])
        error = sum(statistics.variance(kept[each]) / len(kept[each]) for each in (way, NONE)) ** 0.5
        figures |= {
            f"{way}_us": round(cost, 3),
            f"{way}_ratio": round(1 + cost / none_us, 4),
            f"{way}_ratio_error": round(error / none_us, 4),
        }
    return figures


def main() -> None:
    """Measure all ways by turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of a case")
    parser.add_argument("--events", type=int, default=1_000, help="greatest number of events in a window")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        serve(options.child, options.events, ENTITIES, made=lambda app: Switch(app, options.found))
        return
    quiet = how_quiet()
    figures: dict[str, dict[str, float]] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        arguments = ["--events", str(options.events), "--found", str(found)]
        with child(lambda port: [__file__, "--child", str(port), *arguments], environment) as (url, pid):
            for case in CASES:
                address = f"{url}/api/v1/query"
                requests = [post(address, body) for body in caraway_requests(options.events)[case][0]]
                together(url, requests, min(WARM_UP_SECONDS, options.seconds), options.connections)
                before = processor_seconds(pid)
                done = together(url, requests, options.seconds / 2, options.connections)
                us = 1e6 * (processor_seconds(pid) - before) / len(done.latencies)
                measured(pid, found)
                # The times of requests of one connection don't overlap.
                together(url, requests, options.seconds, 1)
                figures[case] = summary(measured(pid, found), us)
    for name, one in figures.items():
        print(f"{name}: {one['none_us']:.1f} us a query without signals")
        for way, wanted in ((METRICS, f"; at most {TARGET} wanted"), (ALL, "")):
            ratio = f"{one[f'{way}_ratio']:.3f} (standard error {one[f'{way}_ratio_error']:.3f}{wanted})"
            print(f"  {way}: {one[f'{way}_us']:.2f} us more, {ratio}")
    print(quiet)
    report = {
        "bench": "signals",
        "seconds": options.seconds,
        "held_up": quiet.part,
        "figures": figures,
        "load_average": os.getloadavg()[0],
    }
    publish(report, options.json)


if __name__ == "__main__":
    main()
