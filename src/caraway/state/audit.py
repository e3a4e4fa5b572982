"""The audit log: which account changed what, and which requests were refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from caraway.state.access_tables import audit
from caraway.state.database import TIMEOUT_SECONDS, in_transaction

T = TypeVar("T")

# The outcome of an act that hasn't ended; it stays if the server dies in the middle.
BEGUN = "begun"
# The act is done when its outcome is written, so its answer waits no longer than this for Postgres.
END_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act of an account, done or only attempted. `detail` is free text for readers of the log."""

    account: str
    token_id: str
    action: str
    branch: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An act as it stands in the log. `times` is greater than 1 if equal refusals were counted together."""

    at: datetime
    act: Act
    outcome: str
    times: int


def write_act(connection: sa.Connection, act: Act, outcome: str, times: int = 1) -> int:
    """Write an act within a transaction, and return its number."""
    values = {"action": act.action, "account": act.account, "token_id": act.token_id}
    number: int = connection.execute(
        sa.insert(audit)
        .values(**values, branch=act.branch, detail=act.detail, outcome=outcome, times=times)
        .returning(audit.c.id)
    ).scalar_one()
    return number


class AuditLog:
    """Writes and reads the audit log. Thread safe."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Write through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def begin(self, act: Act) -> int:
        """Write down an act before it is done, and return its number. A retry may leave a second row in state `begun`.

        Raises:
            UnavailableError: Postgres doesn't answer; the caller must not do the act then.
        """
        return self._write(lambda connection: write_act(connection, act, BEGUN), self._timeout_seconds)

    def end(self, number: int, outcome: str) -> None:
        """Write down the outcome of an act.

        Raises:
            UnavailableError: Postgres doesn't answer; the act stays written down as begun.
        """
        statement = sa.update(audit).where(audit.c.id == number).values(outcome=outcome)
        self._write(lambda connection: connection.execute(statement), END_TIMEOUT_SECONDS)

    def refusals(self, counts: Mapping[tuple[Act, str], int]) -> None:
        """Write down refused acts with their outcomes, and how often each occurred since the last call."""

        def write(connection: sa.Connection) -> None:
            for (act, outcome), times in counts.items():
                write_act(connection, act, outcome, times)

        self._write(write, self._timeout_seconds)

    def newest(self, limit: int) -> Sequence[AuditRecord]:
        """Return the newest acts, newest first."""
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)

        def read(connection: sa.Connection) -> Sequence[AuditRecord]:
            return [_record(row) for row in connection.execute(query).mappings()]

        return in_transaction(self._engine, read, what="read the audit log", timeout_seconds=self._timeout_seconds)

    def _write(self, write: Callable[[sa.Connection], T], timeout_seconds: float) -> T:
        return in_transaction(self._engine, write, what="write the audit log", timeout_seconds=timeout_seconds)


def _record(row: sa.RowMapping) -> AuditRecord:
    act = Act(**{name: row[name] for name in ("account", "token_id", "action", "branch", "detail")})
    return AuditRecord(at=row["at"], act=act, outcome=row["outcome"], times=row["times"])
