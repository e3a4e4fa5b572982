"""Polling of messages by a consumer that doesn't wait for more of them than there are."""

from confluent_kafka import Consumer, Message


def poll_some(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """Return messages that have come, at most `most`; none if the first one doesn't come within the timeout in seconds.

    `Consumer.consume` alone waits until it has as many messages as it may return, or until its time is over.
    Errors of Kafka are among the messages, as those of `consume` are.
    """
    first = consumer.consume(1, timeout_s)
    return [*first, *consumer.consume(most - 1, 0)] if first and most > 1 else first
