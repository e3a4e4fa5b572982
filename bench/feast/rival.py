"""Feast as the rival in a benchmark: its environment, its data, its server."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from caraway.process.settings.settings import load_settings

VERSION = "0.67.0"
PREPARE = Path(__file__).with_name("prepare.py")
START_SECONDS = 60.0


@contextmanager
def feast_server(entities: int, features: int) -> Iterator[str]:
    """Serve `features` features of `entities` entities from sqlite; yield the server's address.

    The environment is made once, in Caraway's cache folder. The server has one worker that isn't recycled.
    """
    binaries = environment()
    folder = Path(tempfile.mkdtemp(prefix="feast-"))
    port = _free_port()
    try:
        _run([binaries / "python", PREPARE, folder, entities, features])
        command = [binaries / "feast", "-c", folder, "serve", "--port", port, "--workers", 1, "--max-requests", 0]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([*map(str, command), "--no-access-log"], stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for(port, server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(10)
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment() -> Path:
    """Make the environment if it doesn't exist, and return the folder of its programs."""
    folder = load_settings().cache_dir / f"feast-{VERSION}"
    if not (folder / "bin" / "feast").exists():
        print(f"Installing Feast {VERSION} into {folder}", file=sys.stderr)
        uv = shutil.which("uv")
        if uv:
            _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder])
            _run([uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", f"feast=={VERSION}"])
        else:
            _run([sys.executable, "-m", "venv", "--clear", folder])
            _run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"feast=={VERSION}"])
    return folder / "bin"


def _run(command: list[object]) -> None:
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise SystemExit(f"feast serve didn't start:\n{log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
