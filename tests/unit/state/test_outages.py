"""Outages of Postgres: operations wait for their end, unless the process ends."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from caraway.errors import UnavailableError
from caraway.state.database import connect, end_retries, in_transaction

# Nothing listens on this port.
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def test_a_process_that_ends_does_not_wait_for_postgres() -> None:
    engine, tried = connect(NOWHERE), threading.Event()
    sa.event.listen(engine, "do_connect", lambda *_: tried.set())

    def operation() -> None:
        in_transaction(engine, lambda _: None, what="read the rows", timeout_seconds=60)

    with ThreadPoolExecutor(1) as thread:
        started = time.monotonic()
        waiting = thread.submit(operation)
        assert tried.wait(30)
        end_retries(engine)
        with pytest.raises(UnavailableError, match="could not read the rows: Postgres doesn't answer"):
            waiting.result(30)
    assert time.monotonic() - started < 30
    # Operations that begin later are tried once.
    with pytest.raises(UnavailableError, match="doesn't answer"):
        operation()


def test_an_outage_is_waited_for_as_long_as_is_asked() -> None:
    with pytest.raises(UnavailableError, match=r"could not read the rows: Postgres has not answered for 0\.2 s"):
        in_transaction(connect(NOWHERE), lambda _: None, what="read the rows", timeout_seconds=0.2)
