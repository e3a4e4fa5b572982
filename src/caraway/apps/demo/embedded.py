"""A stack that runs for one block of code, for the demo and the benchmarks."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from caraway.apps.cli.output import out
from caraway.apps.cli.progress import shown_progress
from caraway.apps.stack.stack import Stack
from caraway.process.settings.settings import load_settings


@contextmanager
def data_folder(chosen: Path | None, *, keep: bool = False) -> Iterator[Path]:
    """Yield the chosen folder, or a new one, which is removed afterwards unless `keep` is true."""
    if chosen is not None:
        yield chosen
        return
    folder = Path(tempfile.mkdtemp(prefix="caraway-"))
    # Postgres refuses to run as root. If this process is root, Postgres runs as another user, who must be able to enter
    # the folder.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if not keep:
            with suppress(OSError):
                shutil.rmtree(folder)


@contextmanager
def running_stack(folder: Path) -> Iterator[str]:
    """Start a stack in a folder, yield its URL, and stop it at the end. Raises `CarawayError` if it doesn't start."""
    stack = Stack(load_settings(folder))
    out.rule("Starting Postgres, Kafka, the Spark engine and the server", align="left")
    with shown_progress() as progress:
        stack.start(progress)
    try:
        out.print(f"Ready at {stack.url}.")
        yield stack.url
    finally:
        out.print("Stopping the stack.")
        stack.stop()


@contextmanager
def server(url: str, data: Path | None = None) -> Iterator[str]:
    """Yield `url` or, if it is empty, the URL of a new stack."""
    if url:
        yield url
        return
    with data_folder(data) as folder, running_stack(folder) as started:
        yield started
