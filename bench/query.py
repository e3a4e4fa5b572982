"""Queries: latency and requests a second of one row and of 100 rows with ten features, one server worker.

    python bench/query.py [--url URL] [--feast] [--seconds 5] [--json FILE]

Latency is measured over one kept connection, each request after the answer to the one before; requests a second with
eight connections. With --feast the same is asked of `feast serve` (its own environment, sqlite, one worker) in the same
run, and the ratio is shown. Without --url a stack is started for the run.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pandas as pd
from feast.rival import VERSION, feast_server
from load import Figures, ask, connect, one_by_one, post, together
from rich.table import Table

from caraway import Client, F, connectors, dataset, featureset, field, meta
from caraway.cli.demo.embedded import server
from caraway.cli.output import out

ENTITIES = 1_000
FEATURES = 10
CONNECTIONS = 8
MANY = 100
# Distinct requests, so that no cache of one answer can help.
VARIANTS = 50
WARM_UP_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
NAMES = [f"f{number}" for number in range(FEATURES)]

webhook = connectors.Webhook(name="bench")


@meta(owner="bench@caraway.example")
@connectors.source(webhook.endpoint("drivers"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Drivers:
    """Ten numbers of a driver."""

    driver: int = field(key=True)
    f0: float
    f1: float
    f2: float
    f3: float
    f4: float
    f5: float
    f6: float
    f7: float
    f8: float
    f9: float
    at: datetime = field(timestamp=True)


@meta(owner="bench@caraway.example")
@featureset
class Driver:
    """The same as features."""

    driver: int
    f0: float = F(Drivers.f0, default=-1.0)
    f1: float = F(Drivers.f1, default=-1.0)
    f2: float = F(Drivers.f2, default=-1.0)
    f3: float = F(Drivers.f3, default=-1.0)
    f4: float = F(Drivers.f4, default=-1.0)
    f5: float = F(Drivers.f5, default=-1.0)
    f6: float = F(Drivers.f6, default=-1.0)
    f7: float = F(Drivers.f7, default=-1.0)
    f8: float = F(Drivers.f8, default=-1.0)
    f9: float = F(Drivers.f9, default=-1.0)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="a server that runs already, with an empty branch")
    parser.add_argument("--feast", action="store_true", help="measure Feast too")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each figure is measured")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    with ExitStack() as running:
        url = running.enter_context(server(options.url))
        fill(url)
        figures = {"caraway": measure(f"{url}/api/v1/query", caraway_body, options.seconds)}
        if options.feast:
            rival = f"{running.enter_context(feast_server(ENTITIES, FEATURES))}/get-online-features"
            check_feast(rival)
            figures["feast"] = measure(rival, feast_body, options.seconds)
    report = {
        "bench": "query",
        "features": FEATURES,
        "entities": ENTITIES,
        "connections": CONNECTIONS,
        "figures": {who: {what: f.as_json() for what, f in each.items()} for who, each in figures.items()},
        "feast_version": VERSION if options.feast else None,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
    }
    show(figures)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def fill(url: str) -> None:
    """Commit the definitions, log a row for each driver, and wait until the last one is served."""
    client = Client(url)
    client.commit("Ten numbers of a driver", [Drivers], [Driver])
    at = datetime.now(tz=UTC) - timedelta(minutes=1)
    rows: dict[str, object] = {"driver": range(ENTITIES), "at": [at] * ENTITIES}
    rows |= {name: [entity + number / 8 for entity in range(ENTITIES)] for number, name in enumerate(NAMES)}
    client.log("bench", "drivers", pd.DataFrame(rows))
    client.close()
    request = post(f"{url}/api/v1/query", caraway_body(list(range(ENTITIES))))
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = [entity + 1 / 8 for entity in range(ENTITIES)]
    with connect(url) as connection:
        while orjson.loads(ask(connection, request).partition(b"\r\n\r\n")[2])["Driver.f1"] != wanted:
            if time.monotonic() > deadline:
                raise SystemExit("the rows that were logged aren't served")
            time.sleep(0.1)


def caraway_body(drivers: list[int]) -> bytes:
    """Ask Caraway for all features of some drivers."""
    outputs = [f"Driver.{name}" for name in NAMES]
    return orjson.dumps({"inputs": ["Driver.driver"], "outputs": outputs, "data": {"Driver.driver": drivers}})


def feast_body(drivers: list[int]) -> bytes:
    """Ask Feast for the same."""
    return orjson.dumps({"features": [f"drivers:{name}" for name in NAMES], "entities": {"driver": drivers}})


def check_feast(url: str) -> None:
    """Make sure that the rival serves the same values."""
    with connect(url) as connection:
        body = orjson.loads(ask(connection, post(url, feast_body([7]))).partition(b"\r\n\r\n")[2])
    served = dict(zip(body["metadata"]["feature_names"], (r["values"][0] for r in body["results"]), strict=True))
    if served["f1"] != 7 + 1 / 8:
        raise SystemExit(f"Feast serves something else: {served}")


def measure(url: str, body: Callable[[list[int]], bytes], seconds: float) -> dict[str, Figures]:
    """Measure a server."""
    single = [post(url, body([37 * number % ENTITIES])) for number in range(VARIANTS)]
    many = [post(url, body([(37 * number + 7 * row) % ENTITIES for row in range(MANY)])) for number in range(VARIANTS)]
    one_by_one(url, single, WARM_UP_SECONDS)
    return {
        "1 row, 1 connection": one_by_one(url, single, seconds),
        "1 row, 8 connections": together(url, single, seconds, CONNECTIONS),
        "100 rows, 1 connection": one_by_one(url, many, seconds),
        "100 rows, 8 connections": together(url, many, seconds, CONNECTIONS),
    }


def show(figures: dict[str, dict[str, Figures]]) -> None:
    """Print the figures."""
    table = Table("", "server", "p50", "p99", "requests/s", title=f"{FEATURES} features of an entity")
    for what in figures["caraway"]:
        for who, each in figures.items():
            f = each[what]
            table.add_row(what, who, f"{f.percentile(50):.3f} ms", f"{f.percentile(99):.3f} ms", f"{f.rate:,.0f}")
        if "feast" in figures:
            ours, theirs = figures["caraway"][what], figures["feast"][what]
            p50 = theirs.percentile(50) / ours.percentile(50)
            p99 = theirs.percentile(99) / ours.percentile(99)
            table.add_row("", "feast / caraway", f"{p50:.1f}", f"{p99:.1f}", f"{theirs.rate / ours.rate:.2f}")
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
