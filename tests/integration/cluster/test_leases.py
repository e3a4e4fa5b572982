"""Leases on a real Postgres: one owner at a time, and tokens that grow."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from caraway.state.database import connect
from caraway.state.ownership.leases import Lease

LONG, OVER = timedelta(hours=1), timedelta(seconds=-1)


@pytest.fixture
def database(postgres: str) -> Iterator[sa.Engine]:
    engine = connect(postgres)
    yield engine
    engine.dispose()


def test_a_lease_has_one_owner_and_each_has_a_greater_token(database: sa.Engine) -> None:
    one, other = (Lease(engine=database, name="engine", owner=owner) for owner in ("one", "other"))
    assert one.claim(LONG, succeeds=False) == 1
    assert other.claim(LONG, succeeds=True) is None
    assert one.claim(LONG, succeeds=False) is None
    # It is known to be gone.
    assert one.claim(LONG, succeeds=True) == 2
    assert not one.renew(1, LONG)
    assert one.renew(2, OVER)
    # One that ran out may be held on to, as long as nobody has claimed it.
    assert one.renew(2, OVER)
    assert other.claim(LONG, succeeds=False) == 3
    assert not one.renew(2, LONG)
    # An owner that has lost the lease can't release it.
    one.release(2)
    assert one.claim(LONG, succeeds=False) is None
    other.release(3)
    assert one.claim(LONG, succeeds=False) == 4


def test_of_many_that_claim_at_once_one_succeeds(database: sa.Engine) -> None:
    claims = [Lease(engine=database, name="engine", owner=str(number)) for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        for token in (1, 2):
            won = list(pool.map(lambda lease: lease.claim(LONG, succeeds=False), claims))
            assert sorted(filter(None, won)) == [token]
            claims[0].release(token)
