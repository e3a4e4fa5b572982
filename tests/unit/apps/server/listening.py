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
    host: str = "127.0.0.1",
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
        server = http_server(app, host, chosen, connections=limit, certificate=certificate, key=key)
        serving = asyncio.create_task(server.serve())
        loops.append(asyncio.get_running_loop())
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, chosen)
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
    try:
        yield chosen
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(30)
