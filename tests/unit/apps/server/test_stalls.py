"""Tests that a server names in its log what held its event loop, and counts it, and no work in threads."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from caraway.apps.stack import ports
from tests.unit.process.children.waiting import eventually

pytestmark = pytest.mark.slow

# Serves paths that hold the event loop in two ways, and one that does the same work in a thread.
PROGRAM = """
import asyncio, sys, time
import uvloop
from prometheus_client import generate_latest
from caraway.process.settings.server import ServerSettings
from caraway.process.logs import configure_logging
from caraway.apps.server import serving
from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App
from caraway.apps.server.http.endpoints import PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request, text_response
from caraway.state.audit import AuditLog
from caraway.state.database import connect

def computing_for(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

async def compute(request: Request) -> HttpResponse:
    computing_for(0.3)
    return text_response("")

async def sleep(request: Request) -> HttpResponse:
    time.sleep(0.3)
    return text_response("")

async def hang(request: Request) -> HttpResponse:
    time.sleep(600)

async def thread(request: Request) -> HttpResponse:
    await asyncio.to_thread(time.sleep, 0.5)
    return text_response("")

async def metrics(request: Request) -> HttpResponse:
    return text_response(generate_latest().decode())

configure_logging("info")
gate = Gate(AuditLog(connect("postgresql://nobody@127.0.0.1:1/none")), None)
handlers = (compute, sleep, hang, thread, metrics)
paths = [Endpoint("GET", f"/{handler.__name__}", handler, PUBLIC, target=handler.__name__) for handler in handlers]
app = App(Router(paths), gate, sites=Sites(ServerSettings()))
server = serving.http_server(app, "127.0.0.1", int(sys.argv[1]), connections=16)
uvloop.run(serving.serve(server, lambda: None))
"""


class Stalling:
    """A server of the program above, its client and its log."""

    def __init__(self, url: str, log: Path) -> None:
        self._url, self._log = url, log
        self.client = httpx2.Client(base_url=url, timeout=60, trust_env=False)

    def get(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def of(self, way: str) -> list[dict[str, Any]]:
        """Return the lines about stalls in which a function of the program was called."""
        return [
            line
            for line in self.lines("the event loop stood still")
            if any(call.endswith(f" {way}") for call in line["calls"])
        ]

    def hanging(self) -> list[dict[str, Any]]:
        """Return the lines that were written while a function of the program hung."""
        return [line for line in self.lines("the event loop stands still") if line["calls"][0].endswith(" hang")]

    def count(self) -> float:
        """Return the number of stalls that the metrics show."""
        lines = self.get("/metrics").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("caraway_event_loop_stalls_total"))


@contextmanager
def stalling(folder: Path) -> Iterator[Stalling]:
    port, log = ports.choose(), folder / "log"
    command = [sys.executable, "-c", PROGRAM, str(port)]
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            made = Stalling(f"http://127.0.0.1:{port}", log)

            def answers() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return bool(made.get("/metrics"))
                except httpx2.TransportError:
                    return False

            with made.client:
                eventually(answers, 60)
                yield made
        finally:
            process.kill()


def test_what_holds_the_event_loop_is_named_and_counted(tmp_path: Path) -> None:
    with stalling(tmp_path) as server:
        server.get("/thread")
        # A busy machine may have held up the loop, which then computed for a short time.
        assert not [line for line in server.lines("the event loop stood still") if line["processor_seconds"] > 0.2]
        for way in ("compute", "sleep"):
            before = server.count()
            server.get(f"/{way}")
            eventually(lambda: bool(server.of(way)))  # noqa: B023 (called here)
            assert server.count() > before
        computed, slept = server.of("compute")[0], server.of("sleep")[0]
        assert min(computed["seconds"], slept["seconds"]) >= 0.3
        # The time of the processor tells which of the two it was.
        assert slept["processor_seconds"] < 0.3 <= computed["processor_seconds"]
        # The innermost call comes first.
        assert [call.rpartition(" ")[2] for call in computed["calls"]][:2] == ["computing_for", "compute"]
        # A stall that may never end is told while it lasts, with the calls of all threads.
        with pytest.raises(httpx2.TimeoutException):
            server.client.get("/hang", timeout=0.1)
        # On a busy machine, what computed before may have taken so long, too.
        eventually(lambda: bool(server.hanging()), 60)
        assert "MainThread" in server.hanging()[0]["threads"]
