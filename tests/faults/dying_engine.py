"""An engine as its program runs it, which writes down its steps and kills itself before a chosen one.

The steps are found at its connection to Postgres; the product knows nothing of it. A step is named by its statement,
and a commit by the statement before it, so that those that come again every second have one name.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect

from caraway.dataplane.streams.engine.__main__ import main

# The name of a step, at which to die; steps are written down while it is there.
ORDER, TAKEN, DIED = "order", "taken", "died"


class Steps:
    """Writes down the steps of this process, in a folder that outlives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._last = threading.local()

    def listen(self) -> None:
        sa.event.listen(sa.Engine, "before_cursor_execute", self._statement)
        commit = DefaultDialect.do_commit

        def counted(dialect: DefaultDialect, connection: sa.PoolProxiedConnection) -> None:
            last = getattr(self._last, "statement", "nothing")
            self._step(f"COMMIT of {last}")
            commit(dialect, connection)  # type: ignore[no-untyped-call]
            self._step(f"after the COMMIT of {last}")

        DefaultDialect.do_commit = counted  # type: ignore[method-assign]

    def _statement(self, *arguments: object) -> None:
        # Without what differs from one call to the next.
        self._last.statement = " ".join(str(arguments[2]).split())[:60]
        self._step(self._last.statement)

    def _step(self, name: str) -> None:
        with self._lock:
            order = self._folder / ORDER
            if not order.exists():
                return
            with (self._folder / TAKEN).open("a") as file:
                file.write(f"{name}\n")
            if order.read_text() == name:
                order.rename(self._folder / DIED)
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Steps(Path(sys.argv[1])).listen()
    sys.exit(main())
