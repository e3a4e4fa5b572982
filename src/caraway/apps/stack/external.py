"""The watch over a service that the user runs outside of the stack: Kafka or Postgres."""

from collections.abc import Callable
from dataclasses import replace

from caraway.process.children.part import PartState, PartStatus
from caraway.process.recurring import Recurring

# The pauses between two checks while the service answers, and while it doesn't.
WATCH_SECONDS, AWAY_SECONDS = 5.0, 1.0


class ExternalService(Recurring):
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
        warning: Callable[[], str] = str,
    ) -> None:
        super().__init__(f"caraway-{name}", self._look, self._pause_s, at_once=True)
        self.status = PartStatus(name=name, state=PartState.STARTING, external=True)
        self.has_been_ready = False
        self._check = check
        self._warning = warning
        self._on_change = on_change

    def _look(self) -> None:
        reason = self._check()
        state = PartState.RUNNING if reason is None else PartState.UNRESPONSIVE
        message = self._warning() if reason is None else reason
        if (state, message) != (self.status.state, self.status.message):
            self.status = replace(self.status, state=state, message=message)
            self._on_change(self.status)
        self.has_been_ready |= reason is None

    def _pause_s(self) -> float:
        return WATCH_SECONDS if self.status.state is PartState.RUNNING else AWAY_SECONDS
