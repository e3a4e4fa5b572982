import pytest

from caraway.dataplane.streams.engine.slots import NoSlotsError, SlotBook


def test_no_more_slots_are_given_than_there_are() -> None:
    book = SlotBook(lambda: 10)
    running = {"a": True}
    book.reserve("a", 6)
    book.follow("a", lambda: running["a"])
    book.reserve("b", 4)
    with pytest.raises(NoSlotsError, match="needs 1 slot of Spark at once, and 0 of 10 are free"):
        book.reserve("c", 1)
    # A job that has ended or was stopped frees its slots.
    book.release("b")
    book.reserve("c", 3)
    with pytest.raises(NoSlotsError, match="2 slots of Spark at once, and 1 of 10"):
        book.reserve("d", 2)
    running["a"] = False
    book.reserve("d", 7)


def test_the_error_about_too_few_slots_names_remedies_that_help() -> None:
    with pytest.raises(NoSlotsError) as found:
        SlotBook(lambda: 1).reserve("a", 2)
    assert "Delete branches or pipelines that nobody needs" in str(found.value)
    assert "even while it is idle" in str(found.value)
    assert "cost next to nothing" not in str(found.value)


def test_a_job_that_is_started_again_has_its_own_slots() -> None:
    book = SlotBook(lambda: 3)
    for _ in range(3):
        book.reserve("a", 3)


def test_no_job_is_refused_while_the_number_of_slots_is_unknown() -> None:
    offered = 0
    book = SlotBook(lambda: offered)
    book.reserve("a", 100)
    offered = 100
    with pytest.raises(NoSlotsError):
        book.reserve("b", 1)
