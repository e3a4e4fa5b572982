"""The cost of request ids and traces: processor time of a query in the server's application, in turns.

    python -m bench tracing [--queries 2000] [--rounds 7] [--against FOLDER]

Each way runs in a process of its own, one after the other, `rounds` times; the ratios are those of the medians. The
index is empty, and neither HTTP nor a network is in between, so shares of a real query are smaller. `--against` names
a checkout of another commit, whose application has no tracer.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parent.parent
# The shares of the requests that are traced; None: there is no tracer. Nobody listens at the address, so spans are made
# and dropped.
WAYS = {"without a tracer": None, "share 0": 0.0, "share 0.01": 0.01}
URL = "http://127.0.0.1:9/v1/traces"


def measured(queries: int, share: float | None) -> float:
    """Return the microseconds of processor time of a query."""
    from caraway.apps.server.tracing.otel import OtelTracer  # noqa: PLC0415 (from the checkout that is measured)
    from tests.unit.apps.server import asking  # noqa: PLC0415
    from tests.unit.apps.server import test_answers as answers  # noqa: PLC0415

    app = answers.make_app(tracer=None if share is None else OtelTracer(URL, share, "bench"))
    body = json.dumps(answers.QUERY).encode()
    headers = asking.Headers(
        **{"host": "127.0.0.1:8100", "content-length": str(len(body)), "content-type": "application/json"}
    )
    scope: Any = SimpleNamespace(
        scheme="http", client="127.0.0.1:1", method="POST", path="/api/v1/query", query_string="", headers=headers
    )

    async def run(count: int) -> float:
        begin = time.thread_time()
        for _ in range(count):
            exchange: Any = asking.Exchange(body)
            await app.__rsgi__(scope, exchange)
        return time.thread_time() - begin

    asyncio.run(run(queries // 5))
    return asyncio.run(run(queries)) / queries * 1e6


def child(folder: Path, queries: int, share: float | None) -> float:
    """Measure in a process of its own, with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    command = [sys.executable, __file__, "--child", "--queries", str(queries)]
    if share is not None:
        command += ["--share", str(share)]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure each way in turns, and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--share", type=float)
    chosen = parser.parse_args()
    if chosen.child:
        print(measured(chosen.queries, chosen.share))
        return
    ways = {name: (ROOT, share) for name, share in WAYS.items()}
    if chosen.against is not None:
        ways = {str(chosen.against): (chosen.against.resolve(), None), **ways}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(chosen.rounds):
        for name, (folder, share) in ways.items():
            found[name].append(child(folder, chosen.queries, share))
    first = statistics.median(next(iter(found.values())))
    for name, times in found.items():
        median = statistics.median(times)
        paired = statistics.median(
            mine / theirs for mine, theirs in zip(times, next(iter(found.values())), strict=True)
        )
        print(f"{name}: {median:.1f} us a query, {median / first:.3f} of the first; median of pairs {paired:.3f}")


if __name__ == "__main__":
    main()
