"""A server of tests that listens on a port of its own, in a thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from caraway.apps.server.app import App
from caraway.apps.server.serving import http_server
from caraway.apps.stack import ports


@contextmanager
def serving(
    app: App,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    port: int | None = None,
    limit: int = 16_384,
) -> Iterator[int]:
    """Serve an application until the block ends; yield the port."""
    chosen = ports.choose() if port is None else port
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        server = http_server(app, "127.0.0.1", chosen, connections=limit, certificate=certificate, key=key)
        serving = asyncio.create_task(server.serve())
        loops.append(asyncio.get_running_loop())
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", chosen)
                writer.close()
                break
            await asyncio.sleep(0.01)
        ready.set()
        await stop.wait()
        server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait({serving}, timeout=5)

    thread = threading.Thread(target=uvloop.run, args=(run(),))
    thread.start()
    assert ready.wait(30)
    yield chosen
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(30)
