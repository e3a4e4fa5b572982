"""The watch over a service that runs outside of the stack: your Kafka cluster, your Postgres."""

import threading
from collections.abc import Callable
from dataclasses import replace

from caraway.stack.part import PartState, PartStatus

WATCH_SECONDS = 5.0


class ExternalService:
    """Checks a service from a thread of its own.

    Attributes:
        status: The newest state of the service.
        has_been_ready: True if the service ever answered.
    """

    def __init__(
        self,
        name: str,
        check: Callable[[], str | None],
        *,
        on_change: Callable[[PartStatus], None],
    ) -> None:
        self.status = PartStatus(name=name, state=PartState.STARTING, external=True)
        self.has_been_ready = False
        self._check = check
        self._on_change = on_change
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"caraway-{name}", daemon=True)

    def start(self) -> None:
        """Start the watch; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch; returns at once."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until the watch has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            reason = self._check()
            state = PartState.RUNNING if reason is None else PartState.UNRESPONSIVE
            if (state, reason or "") != (self.status.state, self.status.message):
                self.status = replace(self.status, state=state, message=reason or "")
                self._on_change(self.status)
            self.has_been_ready |= reason is None
            self._stopping.wait(WATCH_SECONDS if reason is None else 1.0)
