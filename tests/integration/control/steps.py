"""A control process that stops at a chosen step; steps are its statements, transactions and topics.

The steps are found by watching the connections, which are real; the product knows nothing of it. Topics are files in
a folder, so that they outlive the process as those of a broker would.
"""

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from caraway.apps.server.control.reconciler import LedgerReconciler
from caraway.apps.server.control.service import CommitService
from caraway.apps.server.control.world import Deployed
from caraway.graph.wire.graphs import CommitRequest
from caraway.state.database import connect
from caraway.state.ledger import Ledger
from caraway.state.reader import StateReader
from caraway.state.tables import asset_references, assets, branches, commits, jobs, ledger
from caraway.state.writer import StateWriter

# The tables that a commit may change.
TABLES = (commits, branches, assets, asset_references, ledger, jobs)
BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)


class CrashError(BaseException):
    """The process has died; no code of the process may catch this."""


@dataclass
class Steps:
    """Counts steps, and does `act` once before the step number `at`."""

    at: int | None = None
    act: Callable[[], None] = lambda: None
    taken: list[str] = field(default_factory=list)

    def step(self, what: str) -> None:
        if len(self.taken) == self.at:
            self.taken.append(what)
            self.act()
        else:
            self.taken.append(what)


@dataclass
class Clock:
    """A clock that stands still unless it is set."""

    now: datetime = BEGINNING

    def __call__(self) -> datetime:
        return self.now


class Plant:
    """All parts of one control process."""

    def __init__(self, url: str, folder: Path, steps: Steps, clock: Clock) -> None:
        self.engine = connect(url)
        self._folder = folder
        self._steps = steps
        count_steps(self.engine, steps)
        self.reader = StateReader(self.engine)
        self.writer = StateWriter(self.engine, clock=clock, keep=timedelta())
        self.ledger = Ledger(self.engine, clock=clock, keep=timedelta())
        world = Deployed(
            make_topics=self._make, drop_topics=self._drop, job=self.reader.job, index_lag=lambda _: "", clock=clock
        )
        self.reconciler = LedgerReconciler(
            self.ledger, world, check=lambda: None, list_topics=self.topics, drop=self._drop
        )
        self.commits = CommitService(self.reader, self.writer, self.reconciler)

    def topics(self) -> list[str]:
        return [path.name for path in self._folder.iterdir()]

    def close(self) -> None:
        self.engine.dispose()

    def _make(self, names: Iterable[str]) -> None:
        for name in names:
            self._steps.step(f"make {name}")
            (self._folder / name).touch()

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._steps.step(f"drop {name}")
            (self._folder / name).unlink(missing_ok=True)


def count_steps(engine: sa.Engine, steps: Steps) -> None:
    """Count each statement, and each COMMIT twice: before it is sent and after it was answered."""

    def before(*arguments: object) -> None:
        steps.step(str(arguments[2]).partition("\n")[0][:60])

    sa.event.listen(engine, "before_cursor_execute", before)
    commit = engine.dialect.do_commit

    def counted(connection: sa.PoolProxiedConnection) -> None:
        steps.step("COMMIT")
        commit(connection)
        steps.step("COMMIT was answered")

    engine.dialect.do_commit = counted  # type: ignore[method-assign, assignment]


def content(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of all tables that a commit may change."""
    engine = connect(url)
    with engine.connect() as connection:
        found = {t.name: sorted(map(tuple, connection.execute(sa.select(t))), key=str) for t in TABLES}
    engine.dispose()
    return found


def commit_and_die(url: str, folder: Path, at: int, now: datetime, request: CommitRequest) -> None:
    """Make a commit in this process, which kills itself before step number `at`."""
    steps = Steps(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    plant = Plant(url, folder, steps, Clock(now))
    plant.commits.commit(request)
    plant.close()
