"""Connections that outlive a restart of Postgres."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.types.string import StrDumper
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential
from typing_extensions import override

from caraway.errors import InvalidInputError, UnavailableError
from caraway.process.postgres_refusals import remedy_of

# How long an operation is repeated during an outage. After a kill, the embedded Postgres is back within some 2 s; an
# installed Postgres restarts within 10 s.
TIMEOUT_SECONDS = 20.0
CONNECT_TIMEOUT_SECONDS = 5
# TCP keepalives: a probe after 10 s of silence, then up to four, 5 s apart. So a connection notices within half a
# minute that Postgres's machine has vanished without closing it, even if it only waits for notifications.
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
# The pool of a process has at most this many connections. Few are enough, since a process works on few commits and
# reports at a time; queries for features and logged rows don't use Postgres.
POOL_SIZE = 4

# The symbol for a null character (U+2400).
NULL_SYMBOL = "\u2400"
# The SQLSTATE untranslatable_character: a text in JSON has a null character. Such a text is refused, since JSON holds
# positions of sources, which must not be changed.
UNTRANSLATABLE = "22P05"
# The SQLSTATE read_only_sql_transaction, by which a standby refuses to write.
READ_ONLY = "25006"
# The SQLSTATE undefined_table: a table doesn't exist yet. The first server that starts creates the tables while others
# already read them, so this error is reported as an unavailability that passes, and not as a bug.
UNDEFINED_TABLE = "42P01"

T = TypeVar("T")

# The engines whose outages are no longer waited for, since their process ends.
_ENDING: WeakSet[sa.Engine] = WeakSet()


class _TextDumper(StrDumper):
    """Writes texts for Postgres, with a symbol in place of null characters, which Postgres doesn't store.

    Such texts are errors of users' functions, which have to be kept whatever is in them, and names in requests, which
    are then not found.
    """

    @override
    def dump(self, obj: str) -> Buffer | None:
        try:
            return super().dump(obj)
        except psycopg.DataError:
            return super().dump(obj.replace("\0", NULL_SYMBOL))


def connect(url: str) -> sa.Engine:
    """Return a SQLAlchemy engine for a Postgres URL in any of its spellings; it opens no connection yet."""
    engine = sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_size=POOL_SIZE,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS, **KEEPALIVES},
    )
    sa.event.listen(engine, "connect", _keep_texts)
    return engine


def _keep_texts(connection: "psycopg.Connection[Any]", record: object) -> None:
    """Make a new connection write texts by `_TextDumper`."""
    del record
    connection.adapters.register_dumper(str, _TextDumper)


def end_retries(engine: sa.Engine) -> None:
    """Make operations through `engine` fail at an outage from now on; those that wait for its end fail in a second.

    A process that ends calls this, so that it doesn't wait for threads that wait for Postgres.
    """
    _ENDING.add(engine)


def require_tables(engine: sa.Engine, tables: Iterable[str]) -> None:
    """Refuse each transaction of `engine` with `UnavailableError` until these tables exist.

    A process that polls before a server has created the tables would fail in any case, but Postgres would log each
    query of a missing table as an error.
    """
    wanted, exist = [*tables], False
    question = "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest(%s::text[]) AS name"

    def check(connection: sa.Connection) -> None:
        nonlocal exist
        if exist:
            return
        # The question is asked through psycopg's own cursor, because SQLAlchemy would begin another transaction for a
        # statement that is executed through it here.
        cursor = connection.connection.cursor()
        try:
            cursor.execute(question, (wanted,))
            row = cursor.fetchone()
        except psycopg.Error as error:
            raise UnavailableError(f"could not look for the tables: Postgres doesn't answer ({error})") from error
        finally:
            cursor.close()
        exist = bool(row and row[0])
        if not exist:
            raise UnavailableError("the server has not set up the tables yet")

    sa.event.listen(engine, "begin", check)


def is_outage(error: BaseException) -> bool:
    """Return whether an error means that Postgres is unreachable, so that the same call may succeed later."""
    if isinstance(error, OperationalError | InterfaceError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    # A Postgres that refuses writes is a standby. Writes succeed again once a fail-over has ended or an operator has
    # acted.
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) == READ_ONLY


class Store:
    """The base of classes that read and write tables. Outages of Postgres are retried up to a timeout. Thread safe."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Work through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    def _retry(self, operation: Callable[[], T], what: str) -> T:
        return retry_outages(operation, what=what, timeout_seconds=self._timeout_seconds, engine=self._engine)

    def _in_transaction(self, work: Callable[[sa.Connection], T], what: str) -> T:
        return in_transaction(self._engine, work, what=what, timeout_seconds=self._timeout_seconds)


def in_transaction(engine: sa.Engine, work: Callable[[sa.Connection], T], *, what: str, timeout_seconds: float) -> T:
    """Run `work` in a transaction, again and again while Postgres is unreachable; see `retry_outages`."""

    def run() -> T:
        with engine.begin() as connection:
            return work(connection)

    return retry_outages(run, what=what, timeout_seconds=timeout_seconds, engine=engine)


def retry_outages(operation: Callable[[], T], *, what: str, timeout_seconds: float, engine: sa.Engine) -> T:
    """Run an idempotent operation again and again while Postgres is unreachable.

    Args:
        operation: Must be safe to run again when an earlier attempt may have succeeded unnoticed.
        what: The operation in words, for the error message.
        timeout_seconds: How long to go on trying.
        engine: The engine of the operation; after `end_retries` no further attempt is made.

    Raises:
        InvalidInputError: A text in JSON has a null character.
        UnavailableError: Postgres was unreachable for too long or while the process ends, or has no tables yet.
    """
    too_long = stop_after_delay(timeout_seconds)
    retrying = Retrying(
        retry=retry_if_exception(is_outage),
        wait=wait_exponential(multiplier=0.05, max=1.0),
        stop=lambda state: too_long(state) or engine in _ENDING,
        reraise=True,
    )
    try:
        return retrying(operation)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == UNDEFINED_TABLE:
            raise UnavailableError(f"could not {what}: the server has not set up the tables yet") from error
        if getattr(error.orig, "sqlstate", None) == UNTRANSLATABLE:
            raise InvalidInputError(
                f"could not {what}: a text contains a null character (\\0), which Postgres doesn't store in JSON"
            ) from error
        if not is_outage(error):
            raise
        reason = str(error.orig).strip()
        silence = "doesn't answer" if engine in _ENDING else f"has not answered for {timeout_seconds:g} s"
        raise UnavailableError(f"could not {what}: Postgres {silence} ({reason}{remedy_of(reason)})") from error
