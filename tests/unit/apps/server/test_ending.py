"""A server that ends answers the requests that are still under way."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from caraway.apps.stack import ports
from tests.unit.process.children.waiting import eventually

pytestmark = pytest.mark.slow

# Serves a path that never answers by itself, and prints a line once a request for it has come.
PROGRAM = """
import asyncio, sys
import uvloop
from caraway.process.settings.server import ServerSettings
from caraway.apps.server import serving
from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App
from caraway.apps.server.http.endpoints import PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.state.audit import AuditLog
from caraway.state.database import connect

async def slow(request: Request) -> HttpResponse:
    print("asked", flush=True)
    await asyncio.Event().wait()

port = int(sys.argv[1])
gate = Gate(AuditLog(connect("postgresql://nobody@127.0.0.1:1/none")), None)
app = App(Router([Endpoint("GET", "/slow", slow, PUBLIC, target="slow")]), gate, sites=Sites(ServerSettings()))
server = serving.http_server(app, "127.0.0.1", port, connections=16)
uvloop.run(serving.serve(server, lambda: None, end_s=float(sys.argv[2])))
"""


def listens(port: int) -> bool:
    with closing(socket.socket()) as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_a_request_that_takes_longer_than_the_end_gets_an_answer(tmp_path: Path) -> None:
    port, log = ports.choose(), tmp_path / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(port), "5"], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
        httpx2.Client(timeout=60, trust_env=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        assert server.stdout is not None
        try:
            eventually(lambda: listens(port) or server.poll() is not None)
            asking = executor.submit(client.get, f"http://127.0.0.1:{port}/slow")
            assert server.stdout.readline() == "asked\n"
            os.kill(server.pid, signal.SIGTERM)
            answer = asking.result(60)
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert answer.status_code == 503
    assert answer.json()["code"] == "unavailable"
    assert "the server ends" in answer.json()["err_msg"]
    # The structured log has one line about the request; tracebacks would be of callbacks that nobody waits for.
    assert "Traceback" not in log.read_text()
    assert "InvalidState" not in log.read_text()
