"""The queue of changes that sinks are to send again, in a real Postgres."""

import pytest
import sqlalchemy as sa

from caraway.state.sink_replays import SENT, UNKNOWN, AskedReplay, SinkReplays


@pytest.fixture
def queue(engine: sa.Engine) -> SinkReplays:
    return SinkReplays(engine)


def test_changes_are_sent_in_the_order_of_asking_and_asked_for_once(queue: SinkReplays) -> None:
    places = [f"0/{number}" for number in range(4)]
    assert [queue.ask("a", place, f"0-{n}") for n, place in enumerate(places)] == [True] * 4
    assert queue.ask("b", "0/0", "0-9")
    assert not queue.ask("a", "0/1", "0-1")
    asked = queue.after("a", 0, 3)
    assert [each.letter for each in asked] == ["0-0", "0-1", "0-2"]
    numbers = [each.number for each in asked]
    assert numbers == sorted(set(numbers))
    assert queue.outcome("a", "0/0") is None
    queue.note("a", {numbers[0]: SENT, numbers[1]: "refused again: no"})
    queue.settle("a", numbers[2])
    assert [queue.outcome("a", place) for place in places] == [SENT, "refused again: no", UNKNOWN, None]
    assert queue.outcome("b", "0/0") is None
    # A change that was refused again can be asked for again, one in doubt only by another dead letter.
    assert [queue.ask("a", "0/0", "0-7"), queue.ask("a", "0/1", "0-1")] == [False, True]
    assert [queue.ask("a", "0/2", "0-2"), queue.ask("a", "0/2", "0-8")] == [False, True]
    assert [each.letter for each in queue.after("a", numbers[2], 9)] == ["0-3", "0-1", "0-8"]
    queue.forget(["a"])
    assert (queue.after("a", 0, 9), len(queue.after("b", 0, 9))) == ([], 1)
    assert isinstance(queue.after("b", 0, 9)[0], AskedReplay)
