"""A wait is exact: the first query after it sees everything, through all jobs, while rows go on coming."""

import statistics
import time

import pytest

from caraway.apps.demo.settle import AgreementCheck
from caraway.client import Client
from caraway.errors import NotServedError
from tests.e2e.conftest import World

# The flights of a piece are asked for once, so the answer is that of the moment at which the wait returned.
FLIGHTS = 300


def test_the_first_query_after_a_wait_agrees_with_the_oracle(world: World, client: Client) -> None:
    world.ensure(0)
    # The next two pieces, whichever these are: other tests may have replayed some already.
    for number in (world.replayed, world.replayed + 1):
        world.replay(number)
        result = client.wait(timeout=300, progress=False)
        schedule = world.piece(number)["schedule"].head(FLIGHTS)
        expected = world.flights.expected(world.tables, list(schedule["flight_id"]))
        agreement = AgreementCheck(flights=world.flights, schedule=schedule, expected=expected).ask(client)
        assert not agreement.disagreements, (number, result.seconds, agreement.disagreements[:5])


def test_a_wait_that_is_too_short_names_what_lags(world: World, client: Client) -> None:
    world.ensure(0)
    with pytest.raises(NotServedError, match=r"after 0 s not all is served.*\n  job "):
        client.wait(timeout=0)


def test_a_wait_takes_no_longer_than_its_markers(world: World, client: Client) -> None:
    world.ensure(0)
    client.wait(timeout=300, progress=False)
    took = []
    for _ in range(9):
        started = time.monotonic()
        client._connection.request("POST", "/wait", client._headers(), body={"seconds": 10.0})
        took.append(time.monotonic() - started)
    # The markers take some 0.1 s through all jobs. A consumer that doesn't know the leaders of its partitions asks for
    # them once in a second, so most waits took 1.0 s.
    assert statistics.median(took) < 0.9, took
