"""The record of dead letters that were sent again, on a real Postgres."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from caraway.errors import ConflictError
from caraway.state.replays import ATTEMPT, ReplayClaim, Replays
from caraway.state.tables import replays as table


def row(engine: sa.Engine, letter: str) -> sa.Row[tuple[object, ...]]:
    with engine.connect() as connection:
        return connection.execute(sa.select(table).where(table.c.letter == letter)).one()


def age(engine: sa.Engine, letter: str, by: timedelta) -> None:
    """Move the times of a dead letter's record into the past, as if so much time had passed."""
    with engine.begin() as connection:
        connection.execute(
            sa.update(table)
            .where(table.c.letter == letter)
            .values(begun_at=table.c.begun_at - by, tried_at=table.c.tried_at - by)
        )


def test_a_letter_is_claimed_once_and_done_once(engine: sa.Engine) -> None:
    replays = Replays(engine)
    assert replays.claim("0-7", "ann") == ReplayClaim(elapsed=None, done_at=None)
    assert replays.of(["0-7"]) == {}, "nothing is durable yet"
    replays.done("0-7")
    done_at = replays.of(["0-7", "0-8"])["0-7"]
    assert abs(datetime.now(UTC) - done_at) < timedelta(minutes=10)
    again = replays.claim("0-7", "bob")
    assert again.done_at == done_at
    assert replays.of([]) == {}
    assert row(engine, "0-7").account == "ann", "the account is that of the first attempt"


def test_a_second_attempt_waits_for_the_first_one(engine: sa.Engine) -> None:
    replays = Replays(engine)
    replays.claim("0-7", "ann")
    with pytest.raises(ConflictError, match=r"dead letter 0-7 is being sent again since \d+ s"):
        replays.claim("0-7", "bob")
    assert replays.claim("1-7", "bob").elapsed is None, "another letter has nothing to do with it"


def test_of_many_at_the_same_time_one_gets_the_claim(engine: sa.Engine) -> None:
    replays = Replays(engine)

    def attempt(number: int) -> bool:
        try:
            replays.claim("0-7", f"account {number}")
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [False] * 7 + [True]


def test_after_a_crash_between_claim_and_row_the_next_attempt_knows_how_far_back_to_look(engine: sa.Engine) -> None:
    crashed = Replays(engine)
    crashed.claim("0-7", "ann")
    age(engine, "0-7", ATTEMPT)
    begun_at = row(engine, "0-7").begun_at
    # A new process: it searches the topic back to the first attempt, whose row may have become durable.
    claim = Replays(engine).claim("0-7", "bob")
    assert claim.done_at is None
    assert claim.elapsed is not None
    assert claim.elapsed >= ATTEMPT
    with pytest.raises(ConflictError):
        crashed.claim("0-7", "ann")
    # The second attempt crashes, too: the time still counts from the first one.
    age(engine, "0-7", ATTEMPT)
    third = Replays(engine).claim("0-7", "cat")
    assert third.elapsed is not None
    assert third.elapsed >= 2 * ATTEMPT
    assert row(engine, "0-7").begun_at == begun_at - ATTEMPT
    crashed.done("0-7")
    assert list(Replays(engine).of(["0-7"])) == ["0-7"]
