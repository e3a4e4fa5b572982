"""Kills of a server, its broker and what it reads at random moments, one after the other."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from confluent_kafka import KafkaException

from tests.integration.server.server_process import ServerProcess
from tests.integration.spark.broker import Broker
from tests.timeouts import deadline_in

VICTIMS = ("server", "broker")
SECONDS = 900.0
# Each pause before a kill is longer by this factor than the one before.
GROWTH = 1.05


def kill_at_random(
    server: ServerProcess,
    broker: Broker,
    is_done: Callable[[], object],
    *,
    chosen: Random,
    pause_s: tuple[float, float],
    others: Mapping[str, Callable[[], object]] | None = None,
) -> Counter[str]:
    """Kill a server, its broker or others and start them again, until something is done; return how often it was each.

    Args:
        server: The server.
        broker: Its broker, which nobody else uses.
        is_done: Returns whether it is done.
        chosen: Chooses the moments and the victims; each is a victim at least once.
        pause_s: The shortest and the longest pause before the first kill, in seconds; later ones become longer.
        others: Further victims by their names, each with a function that kills it and starts it again.
    """
    victims = (*VICTIMS, *(others or {}))
    kills = Counter[str]()
    deadline = deadline_in(SECONDS)
    while not _holds(is_done):
        assert time.monotonic() < deadline, server.said()
        # However slow the machine is, something is done between two kills in the end.
        time.sleep(chosen.uniform(*pause_s) * GROWTH ** kills.total())
        victim = chosen.choice(victims) if kills.total() >= len(victims) else victims[kills.total()]
        kills[victim] += 1
        if victim == "server":
            server.kill()
            server.start()
        elif victim == "broker":
            broker.kill()
            broker.start()
        elif others is not None:
            others[victim]()
    return kills


def _holds(is_done: Callable[[], object]) -> bool:
    """Return whether something is done; a broker that has just been started may not know that yet."""
    try:
        return bool(is_done())
    except KafkaException:
        return False
