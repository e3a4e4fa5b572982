"""The audit log: who changed what, and who was refused what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from caraway.errors import UnavailableError
from caraway.state.access_tables import audit
from caraway.state.database import TIMEOUT_SECONDS, retry_outages

# What was begun and has no outcome yet; it stays so if the server dies in the middle.
BEGUN = "begun"
# What was done isn't kept from whoever waits for it.
END_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that somebody did or wanted to do. `detail` is for people."""

    account: str
    token_id: str
    action: str
    branch: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An act as it was written down; `times` that it happened, if it was counted together."""

    at: datetime
    act: Act
    outcome: str
    times: int


def write_act(connection: sa.Connection, act: Act, outcome: str, times: int = 1) -> int:
    """Write an act within a transaction; return its number."""
    values = {"action": act.action, "account": act.account, "token_id": act.token_id}
    number: int = connection.execute(
        sa.insert(audit)
        .values(**values, branch=act.branch, detail=act.detail, outcome=outcome, times=times)
        .returning(audit.c.id)
    ).scalar_one()
    return number


class AuditLog:
    """Writes and reads the log. Thread safe."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Write through `engine` (`caraway.state.connect`); an outage of `timeout_seconds` goes unnoticed."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def begin(self, act: Act) -> int:
        """Write down what is about to be done, and return its number. A retry may leave a second row that is begun.

        Raises:
            UnavailableError: Postgres doesn't answer; then it must not be done.
        """

        def write() -> int:
            with self._engine.begin() as connection:
                return write_act(connection, act, BEGUN)

        try:
            return retry_outages(write, what="write the audit log", timeout_seconds=self._timeout_seconds)
        except sa.exc.ProgrammingError as error:
            raise UnavailableError("could not write the audit log: the tables are being set up") from error

    def end(self, number: int, outcome: str) -> None:
        """Write down how it went.

        Raises:
            UnavailableError: Postgres doesn't answer; the act stays written down as begun.
        """
        statement = sa.update(audit).where(audit.c.id == number).values(outcome=outcome)

        def write() -> None:
            with self._engine.begin() as connection:
                connection.execute(statement)

        retry_outages(write, what="write the audit log", timeout_seconds=END_TIMEOUT_SECONDS)

    def refusals(self, counts: Mapping[tuple[Act, str], int]) -> None:
        """Write down what was refused, and how often since the last call.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """

        def write() -> None:
            with self._engine.begin() as connection:
                for (act, outcome), times in counts.items():
                    write_act(connection, act, outcome, times)

        retry_outages(write, what="write the audit log", timeout_seconds=self._timeout_seconds)

    def newest(self, limit: int) -> Sequence[AuditRecord]:
        """Return the newest acts, newest first.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """

        def read() -> Sequence[AuditRecord]:
            with self._engine.connect() as connection:
                rows = connection.execute(sa.select(audit).order_by(audit.c.id.desc()).limit(limit)).mappings().all()
            return [_record(row) for row in rows]

        return retry_outages(read, what="read the audit log", timeout_seconds=self._timeout_seconds)


def _record(row: sa.RowMapping) -> AuditRecord:
    act = Act(**{name: row[name] for name in ("account", "token_id", "action", "branch", "detail")})
    return AuditRecord(at=row["at"], act=act, outcome=row["outcome"], times=row["times"])
