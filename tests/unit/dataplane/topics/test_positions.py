"""A request is repeated while a partition gets a leader, and not after any other error."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from caraway.dataplane.topics.positions import MOVING, while_moving


def answering(*codes: int) -> tuple[list[int], Callable[[], str]]:
    """Return a list of the calls so far, and a request that fails with these codes before it is answered."""
    calls: list[int] = []

    def ask() -> str:
        calls.append(len(calls))
        if len(calls) <= len(codes):
            raise KafkaException(KafkaError(codes[len(calls) - 1]))
        return "answer"

    return calls, ask


def test_a_partition_without_a_leader_is_asked_again() -> None:
    calls, ask = answering(*sorted(MOVING))
    assert while_moving(60.0)(ask) == "answer"
    assert len(calls) == len(MOVING) + 1


def test_other_errors_are_raised_at_once() -> None:
    calls, ask = answering(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        while_moving(60.0)(ask)
    assert len(calls) == 1


def test_the_last_error_is_raised_after_the_time() -> None:
    calls, ask = answering(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1_000)
    with pytest.raises(KafkaException):
        while_moving(0.05)(ask)
    assert len(calls) > 1
