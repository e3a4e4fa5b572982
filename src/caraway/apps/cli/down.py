"""`caraway down`."""

import contextlib
import os
import signal

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.server_options import DataOption
from caraway.apps.stack.errors import NotRunningError
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import StackRecord, read_record
from caraway.process.children.process_table import end_leftovers, is_alive, wait_until_gone
from caraway.process.settings.settings import load_settings

# Seconds until this command kills the supervisor, the process of `caraway up`. The supervisor needs up to 50 s: it
# gives the engine, the server and the archive up to 30 s and then Kafka and Postgres up to 20 s, and kills those that
# hang.
STOP_SECONDS = 60.0


@command
def down(data: DataOption = None) -> None:
    """Stop what `caraway up` runs in the data folder; the data stays."""
    settings = load_settings(data)
    folder = DataFolder(settings.data_dir)
    record = read_record(folder.record)
    if record is None or not (folder.is_claimed() or _leftovers(record)):
        raise NotRunningError(f"Nothing runs in {settings.data_dir}. Another folder is named by --data.")
    if record.pid and record.process_created_at and is_alive(record.pid, record.process_created_at):
        _end(record.pid, record.process_created_at)
    # A killed supervisor doesn't remove its record of the stack. On Linux the kernel ends its parts (such as Kafka and
    # the server) together with the supervisor. On macOS they go on running, and are ended here.
    end_leftovers(_leftovers(record))
    out.print("Stopped. The data stays.")


def _end(pid: int, created_at: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_until_gone(pid, created_at, STOP_SECONDS):
        out.print(f"It didn't stop within {STOP_SECONDS:.0f} s and is killed.")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid, created_at, STOP_SECONDS)


def _leftovers(record: StackRecord) -> list[tuple[int, float]]:
    known = [(part.pid, part.process_created_at) for part in record.parts]
    return [(pid, created) for pid, created in known if pid and created and is_alive(pid, created)]
