"""Queries: latency and requests a second on one server worker, loaded by wrk (apt-get install wrk).

    python bench/query.py [--url URL [--pid PID]] [--feast] [--seconds 5] [--events 100000] [--keys 1000]
                          [--by-python] [--json FILE]

Latency and the processor time of the server's process are those of requests on one kept connection, requests a second
those of eight. On a machine that does other work, processor time is the figure to compare commits by. With --feast the
same queries are sent to `feast serve` (its own environment, sqlite, one worker) in the same run. Without --url the
server runs alone, over an index that is filled without Kafka (`alone.py`); with it the server must have the definitions
and rows of `drivers.py`.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import orjson
import psutil
from alone import alone
from drivers import ENTITIES, SEVENTY, TEN, THIRTY
from feast.rival import VERSION, feast_server
from load import one_by_one, post, together
from quiet import how_quiet
from reports import publish
from rich.table import Table

from caraway.apps.cli.output import out

CONNECTIONS = 8
MANY = 100
# Number of distinct requests, so that no cache of one answer can help.
VARIANTS = 50
WIDE_VARIANTS = 100_000
WARM_UP_SECONDS = 1.0
SCRIPT = Path(__file__).with_name("wrk.lua")
Figures = Mapping[str, float]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="a server that runs already")
    parser.add_argument("--pid", type=int, default=0, help="the process of that server, to report its memory")
    parser.add_argument("--feast", action="store_true", help="measure Feast too")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each measurement")
    parser.add_argument("--events", type=int, default=100_000, help="greatest number of events in a window")
    parser.add_argument("--keys", type=int, default=ENTITIES, help="number of drivers with ten features")
    parser.add_argument("--by-python", action="store_true", help="make the load without wrk, which costs more")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    ask = load_by_python if options.by_python else load
    if not options.by_python and shutil.which("wrk") is None:
        raise SystemExit("wrk makes the load: apt-get install wrk")
    quiet = how_quiet()
    with ExitStack() as running:
        url, pid = (
            (options.url, options.pid) if options.url else running.enter_context(alone(options.events, options.keys))
        )
        process = psutil.Process(pid) if pid else None
        figures = measure(f"{url}/api/v1/query", caraway_requests(options.events), options.seconds, ask, process)
        figures |= measure(
            f"{url}/get-online-features",
            {"1 x 10, as Feast": (feast_bodies("Driver", 1), CONNECTIONS)},
            options.seconds,
            ask,
            process,
        )
        if options.keys > ENTITIES:
            asked = {f"1 x 10 of {options.keys:,} keys": (wide_bodies(options.keys), CONNECTIONS)}
            figures |= measure(f"{url}/api/v1/query", asked, options.seconds, ask, process)
        memory = held(process) if process else None
        if options.feast:
            rival = f"{running.enter_context(feast_server(ENTITIES, len(TEN)))}/get-online-features"
            check_feast(rival)
            requests = {
                "1 x 10": (feast_bodies("drivers", 1), CONNECTIONS),
                "100 x 10": (feast_bodies("drivers", MANY), 1),
            }
            figures |= {f"Feast: {what}": f for what, f in measure(rival, requests, options.seconds, ask).items()}
    report = {
        "bench": "query",
        "connections": CONNECTIONS,
        "keys": options.keys,
        "memory_mib": memory,
        "held_up": quiet.part,
        "held_up_ms": quiet.worst_ms,
        "figures": figures,
        "feast_version": VERSION if options.feast else None,
        "load_average": os.getloadavg()[0],
    }
    show(figures)
    if memory is not None:
        out.print(f"The server holds {memory:,.0f} MiB.")
    out.print(str(quiet))
    publish(report, options.json)
    return 0


Requests = Mapping[str, tuple[Sequence[bytes], int]]
# A function that sends requests to an address one after the other, for some seconds, on some connections.
Ask = Callable[[str, Sequence[bytes], float, int], dict[str, float]]


def caraway_requests(events: int) -> Requests:
    """Return the bodies for each case, and the number of connections for its rate."""
    ten, hundred = [f"Driver.{name}" for name in TEN], [f"Hundred.{name}" for name in (*SEVENTY, *THIRTY)]
    found: dict[str, tuple[Sequence[bytes], int]] = {
        "1 x 10": (bodies("Driver.driver", ten, 1), CONNECTIONS),
        "1 x 100, 30 windows": (bodies("Hundred.driver", hundred, 1), CONNECTIONS),
        "100 x 10": (bodies("Driver.driver", ten, MANY), CONNECTIONS),
        "1 x 1": (bodies("Coded.driver", ["Coded.base"], 1), 1),
        "1 x 1, and 1 traced": (bodies("Coded.driver", ["Coded.base", "Coded.doubled"], 1), 1),
        "1 x 1, and 1 function": (bodies("Coded.driver", ["Coded.base", "Coded.tripled"], 1), 1),
    }
    windows, size = [f"Hundred.{name}" for name in THIRTY if not name.endswith("forever")], 10
    found["100 x 25 windows"] = (bodies("Hundred.driver", windows, MANY), 1)
    while size <= events:
        body = orjson.dumps({"inputs": ["Hundred.driver"], "outputs": windows, "data": {"Hundred.driver": [size]}})
        found[f"25 windows, {size:,} events"] = ([body], 1)
        size *= 10
    return found


def drivers(rows: int, variant: int) -> list[int]:
    """Return entities, without those that have many events."""
    chosen = [(37 * variant + 7 * row + 1) % ENTITIES for row in range(rows)]
    return [driver + 1 if driver in (10, 100) else driver for driver in chosen]


def bodies(key: str, outputs: Sequence[str], rows: int) -> list[bytes]:
    """Return bodies of requests to Caraway."""
    return [
        orjson.dumps({"inputs": [key], "outputs": outputs, "data": {key: drivers(rows, variant)}})
        for variant in range(VARIANTS)
    ]


def wide_bodies(keys: int) -> list[bytes]:
    """Return bodies that ask for drivers all over the database."""
    key, outputs = "Driver.driver", [f"Driver.{name}" for name in TEN]
    chosen = random.Random(7).sample(range(keys), min(keys, WIDE_VARIANTS))
    return [orjson.dumps({"inputs": [key], "outputs": outputs, "data": {key: [driver]}}) for driver in chosen]


def held(process: psutil.Process) -> float:
    """Return the memory of the server's own process, in MiB, without the processes of extractors."""
    return round(process.memory_info().rss / (1 << 20), 1)


def feast_bodies(view: str, rows: int) -> list[bytes]:
    """Return bodies that ask Feast for the same ten features."""
    return [
        orjson.dumps({"features": [f"{view}:{name}" for name in TEN], "entities": {"driver": drivers(rows, variant)}})
        for variant in range(VARIANTS)
    ]


def check_feast(url: str) -> None:
    """Check that the rival serves the same values."""
    body = httpx2.post(url, json={"features": ["drivers:f1"], "entities": {"driver": [7]}}).json()
    served = dict(zip(body["metadata"]["feature_names"], (r["values"][0] for r in body["results"]), strict=True))
    if served["f1"] != 7 + 1 / 8:
        raise SystemExit(f"Feast serves something else: {served}")


def measure(
    url: str, requests: Requests, seconds: float, ask: Ask, process: psutil.Process | None = None
) -> dict[str, Figures]:
    """Return the figures of a server; with its process, the processor time of a request too."""
    figures: dict[str, Figures] = {}
    for what, (asked, connections) in requests.items():
        answer = httpx2.post(url, content=asked[0], headers={"content-type": "application/json"})
        if answer.status_code != 200:
            raise SystemExit(f"{what}: {answer.text[:1000]}")
        ask(url, asked, min(WARM_UP_SECONDS, seconds), 1)
        begun = spent_us(process)
        found = ask(url, asked, seconds, 1)
        spent = {"processor_us": (spent_us(process) - begun) / max(found["requests"], 1)} if process else {}
        busy = found if connections == 1 else ask(url, asked, seconds, connections)
        if found["errors"] or busy["errors"]:
            raise SystemExit(f"{what}: {found['errors'] + busy['errors']:.0f} requests failed")
        spent |= {"per_second": busy["requests"] / busy["seconds"]}
        figures[what] = {**found, **spent, "connections": connections, "busy_p99_ms": busy["p99_ms"]}
    return figures


def spent_us(process: psutil.Process | None) -> float:
    """Return the processor time of a process in microseconds, without that of its children."""
    if process is None:
        return 0.0
    times = process.cpu_times()
    return (times.user + times.system) * 1e6


def load(url: str, asked: Sequence[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Run wrk for `seconds`."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(asked) + b"\n")
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(SCRIPT), url]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "BODIES": file.name}
        )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def load_by_python(url: str, asked: Sequence[bytes], seconds: float, connections: int) -> dict[str, float]:
    """Send requests for `seconds` without wrk; a failed request ends the run."""
    requests = [post(url, body) for body in asked]
    found = one_by_one(url, requests, seconds) if connections == 1 else together(url, requests, seconds, connections)
    shares = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "p999_ms": 99.9, "max_ms": 100}
    return {
        "requests": len(found.latencies),
        "seconds": found.seconds,
        "errors": 0,
        **{name: found.percentile(share) for name, share in shares.items()},
    }


def show(figures: Mapping[str, Any]) -> None:
    """Print the figures."""
    table = Table("entities x features", "p50", "p99", "p99.9", "processor time", "requests/s", "at connections")
    for what, f in figures.items():
        shown = [f"{f[name]:.3f} ms" for name in ("p50_ms", "p99_ms", "p999_ms")]
        spent = f"{f['processor_us']:.0f} us" if "processor_us" in f else ""
        table.add_row(what, *shown, spent, f"{f['per_second']:,.0f}", f"{f['connections']}")
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
