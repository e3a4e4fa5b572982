"""Endurance: full load of queries while events are written, for minutes. Reported are latency, errors and memory.

    python -m bench endurance [--minutes 10] [--rate 1000] [--together 20] [--connections 8] [--json FILE]

A broker, a database and a server are started in a temporary folder, without an engine. Each event is an upsert that
goes through `POST /log`, Kafka and the index to the queries that run meanwhile. First the same load runs without any
writes, for comparison. At the end the last written row of each driver must be served. Without wrk a generator in Python
makes the load (`--by-python`), with fewer requests.
"""

import argparse
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psutil
from drivers import ENTITIES, TEN, Driver, Drivers
from query import CONNECTIONS, bodies, load, load_by_python
from reports import publish
from rich.table import Table
from services import services

from caraway.apps.cli.output import out
from caraway.apps.demo.http import DemoConnection
from caraway.apps.stack import ports
from caraway.apps.stack.programs import ServerProgram
from caraway.client import Client
from caraway.process.settings.settings import Settings
from tests.alone import running

WEBHOOK, ENDPOINT = "bench", "drivers"
WINDOW_SECONDS = 30.0
TIMEOUT_SECONDS = 120.0
MEBIBYTE = 1 << 20
KEY = "Driver.driver"


def main() -> int:
    """Run the benchmark; return 1 if a request failed or a value was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="events a second")
    parser.add_argument("--together", type=int, default=20, help="events of one request")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="connections that query")
    parser.add_argument("--kafka", default="", help="a broker that runs already")
    parser.add_argument("--postgres", default="", help="an empty database that is there already")
    parser.add_argument("--by-python", action="store_true", help="make the load without wrk")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    if not options.by_python and shutil.which("wrk") is None:
        raise SystemExit("wrk makes the load: apt-get install wrk")
    ask = load_by_python if options.by_python else load
    seconds = 60 * options.minutes
    window = min(WINDOW_SECONDS, seconds)
    with ExitStack() as stack:
        url, pid = stack.enter_context(serving(options.kafka, options.postgres))
        commit(url)
        writer = Writer(url, options.rate, options.together)
        writer.write_all()
        asked = bodies(KEY, [f"Driver.{name}" for name in TEN], 1)
        path = f"{url}/api/v1/query"
        ask(path, asked, min(3.0, window), options.connections)
        quiet = ask(path, asked, window, options.connections)
        windows, memory = [], []
        with writer:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                windows.append(ask(path, asked, min(window, max(1.0, left)), options.connections))
                memory.append(held(pid))
        lost = writer.lost()
    report = {
        "bench": "endurance",
        "minutes": options.minutes,
        "connections": options.connections,
        "written_per_second": writer.written / writer.seconds,
        "quiet": quiet,
        "windows": windows,
        "p99_ratio": statistics.median(w["p99_ms"] for w in windows) / quiet["p99_ms"],
        "worst_p99_ratio": max(w["p99_ms"] for w in windows) / quiet["p99_ms"],
        "errors": sum(w["errors"] for w in windows) + quiet["errors"],
        "lost": lost,
        "memory_mib": [round(bytes_ / MEBIBYTE, 1) for bytes_ in memory],
        "load_average": os.getloadavg()[0],
    }
    show(report)
    publish(report, options.json)
    return 1 if report["errors"] or lost else 0


@contextmanager
def serving(kafka: str, postgres: str) -> Iterator[tuple[str, int]]:
    """Start a server with its broker and database; yield its address and pid."""
    with services("endurance", kafka, postgres) as (folder, kafka, postgres):  # noqa: PLR1704
        port = ports.choose()
        settings = Settings.model_validate(
            {
                "data_dir": folder / "data",
                "kafka": {"bootstrap_servers": kafka},
                "postgres": {"url": postgres},
                "server": {"port": port, "tokens": False},
            }
        )
        url = f"http://127.0.0.1:{port}"
        program = ServerProgram(folder / "server", settings, port)
        with running(program, folder / "server.log") as pid:
            yield url, pid


def commit(url: str) -> None:
    """Commit the definitions that are written and queried."""
    client = Client(url)
    client.commit("Drivers", [Drivers], [Driver])
    client.close()


def held(pid: int) -> int:
    """Return the memory of the server, in bytes, with the processes that it started."""
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))


class Writer:
    """Writes rows of drivers at a steady rate, from a thread, and knows the last row of each."""

    def __init__(self, url: str, rate: float, together: int) -> None:
        """Write `rate` rows a second, some of them in one request."""
        self._together = together
        self._url = url
        self._rate = rate
        self._number = 0
        self._begun = time.time()
        self.written = 0
        self.seconds = 0.0
        self._failure: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_SECONDS)
        if self._failure is not None:
            raise self._failure

    def write_all(self) -> None:
        """Write a row for each driver, and wait until they are served."""
        with DemoConnection(self._url) as connection:
            while self._number < ENTITIES:
                self._write(connection, min(500, ENTITIES - self._number))
        if self.lost():
            raise SystemExit("the first rows weren't served; see the log of the server")

    def lost(self) -> int:
        """Return the number of drivers whose last row isn't served; rows on their way get some time."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        drivers = list(range(ENTITIES))
        wanted = [float(self._last(driver)) for driver in drivers]
        body = {"inputs": [KEY], "outputs": ["Driver.f0"], "data": {KEY: drivers}}
        with DemoConnection(self._url) as connection:
            while True:
                served = connection.post("/query", body)["Driver.f0"]
                missing = sum(a != b for a, b in zip(served, wanted, strict=True))
                if not missing or time.monotonic() > deadline:
                    return missing
                time.sleep(0.1)

    def _last(self, driver: int) -> int:
        """Return the number of a driver's last row: drivers are written by turns."""
        return self._number - 1 - (self._number - 1 - driver) % ENTITIES

    def _run(self) -> None:
        started = time.monotonic()
        try:
            with DemoConnection(self._url) as connection:
                while not self._ended.wait(max(0.0, started + self.written / self._rate - time.monotonic())):
                    self._write(connection, self._together)
                    self.written += self._together
        except Exception as error:  # noqa: BLE001 (reported at the end)
            self._failure = error
        self.seconds = time.monotonic() - started

    def _write(self, connection: DemoConnection, count: int) -> None:
        data = [self._row(number) for number in range(self._number, self._number + count)]
        taken = connection.post("/log", {"webhook": WEBHOOK, "endpoint": ENDPOINT, "data": data})
        if taken["accepted"] != count:
            raise RuntimeError(f"rows were refused: {taken}")
        self._number += count

    def _row(self, number: int) -> dict[str, object]:
        # Rows are a millisecond apart, and none is in the future, where it wouldn't be served yet.
        at = self._begun - 86_400 + number / 1000
        values: Sequence[float] = [number + place / 8 for place in range(len(TEN))]
        return {"driver": number % ENTITIES, "at": at, **dict(zip(TEN, values, strict=True))}


def show(report: dict[str, object]) -> None:
    """Print the figures."""
    table = Table("", "p50", "p99", "requests/s", "memory")
    memory = ["", *(f"{mib:,.0f} MiB" for mib in report["memory_mib"])]  # type: ignore[attr-defined]
    windows = [report["quiet"], *report["windows"]]  # type: ignore[misc]
    for number, (window, held_) in enumerate(zip(windows, memory, strict=True)):
        name = f"with writes, {number}" if number else "without writes"
        rate = window["requests"] / window["seconds"]  # type: ignore[index]
        table.add_row(name, f"{window['p50_ms']:.2f} ms", f"{window['p99_ms']:.2f} ms", f"{rate:,.0f}", held_)  # type: ignore[index]
    out.print(table)
    out.print(
        f"{report['written_per_second']:,.0f} events/s; p99 with writes {report['p99_ratio']:.2f} times the quiet one "
        f"(at worst {report['worst_p99_ratio']:.2f}), {report['errors']:.0f} errors, {report['lost']} values lost."
    )


if __name__ == "__main__":
    sys.exit(main())
