"""Rows of log requests: a million of them, while server and broker are killed; none is lost or doubled."""

# mypy: disable-error-code="attr-defined"

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from random import Random

import orjson
import pandas as pd
import pytest

from caraway import dataset, field, meta
from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.specs import Graph
from tests.integration.server.kills import kill_at_random
from tests.integration.server.server_process import ServerProcess, numbers_of, records
from tests.integration.spark.broker import Broker
from tests.timeouts import scaled

MANY = 1_000_000
# Small requests are handled in the server, large ones in its intake process.
CHUNKS = (200, 5_000)
FRAME = 50_000
# One row in so many has a text in place of its value.
REFUSED = 100


@meta(owner="a@b.co")
@source(Webhook(name="meters").endpoint("readings"), disorder="1h", cdc="append")
@dataset
class Metered:
    """Readings of meters."""

    number: int
    reading: float
    at: datetime = field(timestamp=True)


def frame(first: int) -> pd.DataFrame:
    numbers = range(first, first + FRAME)
    return pd.DataFrame(
        {
            "number": numbers,
            "reading": ["unreadable" if number % REFUSED == 0 else number / 7 for number in numbers],
            "at": [1_700_000_000 + number for number in numbers],
        }
    )


def log_all(url: str) -> Counter[str]:
    """Log a million rows by a client, and return how many the answers call accepted and refused."""
    told = Counter[str]()
    with closing(Client(url)) as client:
        for number, first in enumerate(range(0, MANY, FRAME)):
            size = CHUNKS[number % len(CHUNKS)]
            result = client.log(
                "meters", "readings", frame(first), batch_size=size, retry_timeout=scaled(300), strict=False
            )
            assert result is not None
            told += Counter(accepted=result.accepted, rejected=result.rejected)
    return told


@pytest.mark.full(reason="a million rows, and some twenty kills; test_repeats.py has one kill in each run")
@pytest.mark.timeout(1200)
def test_a_million_rows_survive_kills_at_random_moments(
    apart: Callable[[], tuple[ServerProcess, Broker]],
) -> None:
    server, broker = apart()
    kafka = broker.bootstrap_servers
    server.commit(Graph(datasets=(Metered.to_spec(),)))
    topic = server.made_topic("Metered")
    with ThreadPoolExecutor(1) as thread:
        logging = thread.submit(log_all, str(server.settings.server.url))
        kills = kill_at_random(server, broker, logging.done, chosen=Random(12), pause_s=(0.5, 3))
        told = logging.result()
    assert min(kills["server"], kills["broker"]) >= 3, kills
    assert told == Counter(accepted=MANY - MANY // REFUSED, rejected=MANY // REFUSED)
    assert numbers_of(kafka, topic) == Counter(number for number in range(MANY) if number % REFUSED)
    letters = Counter(orjson.loads(value)["row"]["number"] for value in records(kafka, DEAD_LETTERS))
    assert letters == Counter(range(0, MANY, REFUSED))
