"""The audit log: which account changed what, and which requests were refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from caraway.state.database import Store, in_transaction
from caraway.state.tables import audit

T = TypeVar("T")

# The outcome of an act that hasn't ended. If the server dies during the act, the log keeps this outcome for good.
BEGUN = "begun"
# How long the writing of an outcome is retried. The act has been done by then and its caller waits for the answer, so
# an outage of Postgres must not hold the answer up for long.
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
    """An act as it stands in the log. `times` is greater than 1 if equal refusals were counted together.

    The `number` of a later line is greater.
    """

    number: int
    at: datetime
    act: Act
    outcome: str
    times: int


def write_act(connection: sa.Connection, act: Act, outcome: str, times: int = 1) -> int:
    """Write an act within a transaction, and return its number."""
    statement = sa.insert(audit).values(**asdict(act), outcome=outcome, times=times).returning(audit.c.id)
    number: int = connection.execute(statement).scalar_one()
    return number


class AuditLog(Store):
    """Writes and reads the audit log. Thread safe."""

    def begin(self, act: Act) -> int:
        """Write down an act before it is done, and return its number. A retry may leave a second row in state `begun`.

        Raises `UnavailableError` if Postgres doesn't answer; the caller must not do the act then.
        """
        return self._write(lambda connection: write_act(connection, act, BEGUN), self._timeout_seconds)

    def end(self, number: int, outcome: str) -> None:
        """Write down the outcome of an act.

        Raises `UnavailableError` if Postgres doesn't answer; the act stays written down as begun.
        """
        statement = sa.update(audit).where(audit.c.id == number).values(outcome=outcome)
        self._write(lambda connection: connection.execute(statement), END_TIMEOUT_SECONDS)

    def refusals(self, counts: Mapping[tuple[Act, str], int]) -> None:
        """Write down refused acts with their outcomes, and how often each occurred since the last call."""

        def write(connection: sa.Connection) -> None:
            for (act, outcome), times in counts.items():
                write_act(connection, act, outcome, times)

        self._write(write, self._timeout_seconds)

    def newest(self, limit: int, *, before: int | None = None) -> Sequence[AuditRecord]:
        """Return the newest acts, newest first; or the newest of those whose number is less than `before`."""
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.id < before)

        def read(connection: sa.Connection) -> Sequence[AuditRecord]:
            return [_record(row) for row in connection.execute(query).mappings()]

        return self._in_transaction(read, "read the audit log")

    def _write(self, write: Callable[[sa.Connection], T], timeout_seconds: float) -> T:
        return in_transaction(self._engine, write, what="write the audit log", timeout_seconds=timeout_seconds)


def _record(row: sa.RowMapping) -> AuditRecord:
    act = Act(**{name: row[name] for name in ("account", "token_id", "action", "branch", "detail")})
    return AuditRecord(number=row["id"], at=row["at"], act=act, outcome=row["outcome"], times=row["times"])
