"""The query server alone: its HTTP surface in one process, over an index that is filled without Kafka.

    python bench/alone.py PORT EVENTS KEYS [FOLDER]

The command serves the definitions of `drivers.py` until it is ended. Each driver whose number is a power of ten, from
ten to EVENTS, has as many rides in its windows as its number; every other one has twenty. If KEYS is more than the
usual number of drivers, KEYS drivers have the ten numbers. Another process fills the index, so that the memory of
the server is that of serving. The index is kept in FOLDER, and not filled again if it is there.
"""

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop
from drivers import ENTITIES, RIDES_EACH, SEVENTY, TEN, graph, rows
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.limits import AccessLimits
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App
from caraway.apps.server.handlers.context import ReadContext
from caraway.apps.server.http.endpoints import Router, bound
from caraway.apps.server.served_graph import ServedGraph
from caraway.apps.server.serving import SWITCH_INTERVAL_S
from caraway.apps.server.surface import READS
from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.ingest.endpoints import Endpoints
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexPlan
from caraway.graph.plan.planner import plan_graph
from caraway.process.collector import keep_what_is_here
from caraway.process.settings.server import ServerSettings
from caraway.state.audit import AuditLog
from caraway.state.database import connect

NO_DATABASE = "postgresql://127.0.0.1:1/none"
BATCH = 4_000
FILLED = "filled"
SECOND = 1_000_000
START_SECONDS = 1800.0
# All rides are in the hour before the server starts. All windows but the shortest (an hour) therefore include them
# during the whole measurement.
SPAN_US = 3_000 * SECOND


@dataclass(frozen=True)
class Served:
    """A served graph that never changes."""

    served_graph: ServedGraph

    def require_served_graph(self, branch: str = "main") -> ServedGraph:
        """Return the graph, for any branch."""
        del branch
        return self.served_graph


def fill(store: IndexStore, plans: Sequence[IndexPlan], events: int, keys: int) -> None:
    """Write the rows of all datasets."""
    writer, now = IndexWriter(store), time.time_ns() // 1000
    by_name = {plan.dataset: plan for plan in plans}
    for name, numbers in (("Drivers", TEN), ("Profiles", SEVENTY)):
        put(writer, by_name[name], ((row, now - SPAN_US) for row in rows(numbers)), now)
    others = ([driver, *(driver + place / 8 for place in range(len(TEN)))] for driver in range(ENTITIES, keys))
    put(writer, by_name["Drivers"], ((row, now - SPAN_US) for row in others), now)
    each = dict.fromkeys(range(ENTITIES), RIDES_EACH)
    size = 10
    while size <= events:
        each[size] = size
        size *= 10
    rides = (
        ([driver, float(place % 97)], now - SPAN_US + place * SPAN_US // count)
        for driver, count in each.items()
        for place in range(count)
    )
    put(writer, by_name["Stats"], rides, now)


def put(writer: IndexWriter, plan: IndexPlan, given: Iterator[tuple[list[object], int]], now: int) -> None:
    """Write rows with their times."""
    schema = plan.schema
    codec, batch = RecordCodec(schema), list[Message]()
    keys = len(schema.keys)
    for place, (row, at_us) in enumerate(given):
        value = codec.encode_value(op=PUT, time_us=at_us, ingested_us=now, record_id=position_id(0, place), row=row)
        batch.append((codec.encode_key(row[:keys]), value, 0, place))
        if len(batch) == BATCH:
            writer.apply(plan, batch)
            batch = []
    writer.apply(plan, batch)


def fill_in(folder: Path, events: int, keys: int) -> None:
    """Fill the index in a folder, in this process."""
    with IndexStore(folder / "index") as store:
        fill(store, plan_graph(graph()).indexes, events, keys)
    (folder / FILLED).touch()


def serve(
    port: int,
    events: int,
    keys: int,
    kept: Path | None = None,
    *,
    made: Callable[[App], object] = lambda _: None,
) -> None:
    """Fill an index and serve it; `made` gets the application before it serves."""
    with ExitStack() as stack:
        folder = kept or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not (folder / FILLED).exists():
            folder.mkdir(parents=True, exist_ok=True)
            filling = multiprocessing.get_context("spawn").Process(target=fill_in, args=(folder, events, keys))
            filling.start()
            filling.join()
            if filling.exitcode:
                raise SystemExit("the index can't be filled")
        store = stack.enter_context(IndexStore(folder / "index"))
        definitions = graph()
        plan = plan_graph(definitions)
        functions = FunctionPool(processes=2, seconds=10.0)
        functions.start()
        engine = QueryEngine(
            Catalog("bench", definitions), DatasetReader(IndexReader(store), plan.indexes), functions.compiler("bench")
        )
        served = Served(ServedGraph("bench", definitions, plan, Endpoints(plan), engine))
        endpoints = bound(READS, ReadContext(limits=AccessLimits(served), keep=lambda *_, **__: None))
        # Without tokens the gate admits everybody and records nothing, so nothing connects to this database.
        gate = Gate(AuditLog(connect(NO_DATABASE)), None)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        keep_what_is_here()
        app = App(Router(endpoints), gate, sites=Sites(ServerSettings()))
        # The result is kept: it may be what changes the application later.
        kept_by = made(app)
        server = Server(
            app,
            address="127.0.0.1",
            port=port,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
        )
        uvloop.run(server.serve())
        del kept_by


@contextmanager
def alone(events: int, keys: int = ENTITIES) -> Iterator[tuple[str, int]]:
    """Start the server in another process, yield its address and pid, and end it."""
    with child(lambda port: [__file__, str(port), str(events), str(keys)], os.environ) as served:
        yield served


@contextmanager
def child(arguments: Callable[[int], list[str]], environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Start a server in another process of Python, yield its address and pid, and end it.

    Args:
        arguments: Returns the arguments of Python, given the port on which the server listens.
        environment: The environment of the process.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, *arguments(port)], env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        else:
            raise SystemExit("the server didn't start")
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


if __name__ == "__main__":
    port, events, keys = map(int, sys.argv[1:4])
    serve(port, events, keys, Path(sys.argv[4]) if len(sys.argv) > 4 else None)
