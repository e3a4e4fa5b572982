"""Crashes between any two statements: a connection that fails after a number of them."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


class CrashError(BaseException):
    """The process has died; no code of the process may catch this."""


class Crashes:
    """Makes the statements of a SQLAlchemy engine fail from a chosen one on."""

    def __init__(self, engine: sa.Engine) -> None:
        self._left: int | None = None
        sa.event.listen(engine, "before_cursor_execute", self._before)
        sa.event.listen(engine, "commit", self._commit)

    @contextmanager
    def after(self, statements: int | None) -> Iterator[None]:
        """Crash after so many statements, commits counted too; never if None."""
        self._left = statements
        try:
            yield
        finally:
            self._left = None

    def _before(self, *_: object) -> None:
        self._count()

    def _commit(self, _: object) -> None:
        self._count()

    def _count(self) -> None:
        if self._left is None:
            return
        if self._left == 0:
            raise CrashError
        self._left -= 1
