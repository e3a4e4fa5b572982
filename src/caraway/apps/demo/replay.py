"""Sending the events to the HTTP log endpoint, in event order, as a program of a user would."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pandas as pd

from caraway.apps.demo.example import WEBHOOK, Flights
from caraway.client import Client

# All events are sent in slices of `SLICE` events. In each slice, the events of one endpoint are sent in requests of at
# most `BATCH` events.
SLICE = 3000
BATCH = 1000
# Seconds for which a request is repeated. A killed broker or server is back after some 10 s, or 30 s on a busy machine.
RETRY_SECONDS = 180.0

# A function that is called after each slice, with its number of events and the time up to which all events have been
# sent.
OnSlice = Callable[[int, pd.Timestamp], None]


def replay(
    flights: Flights,
    url: str,
    tables: Mapping[str, pd.DataFrame],
    *,
    speed: float,
    on_slice: OnSlice,
    size: int = SLICE,
) -> float:
    """Send all events of the example, and return how many seconds passed until the last one was durable.

    The events of `tables`, by endpoint, are sent in slices of `size`, `speed` times faster than in reality (0: as fast
    as possible). Raises `CarawayError` if the server refused events, or was unreachable for too long.
    """
    started = time.monotonic()
    first: pd.Timestamp | None = None
    with ExitStack() as closing:
        # Each endpoint has a connection of its own, so that the events of an endpoint stay in order.
        clients = {endpoint: closing.enter_context(Client(url)) for endpoint, rows in tables.items() if len(rows)}
        pool = closing.enter_context(ThreadPoolExecutor(len(clients)))
        for piece in flights.slices(tables, size):
            reached = max(_times(flights, endpoint, rows).max() for endpoint, rows in piece.items())
            first = first or min(_times(flights, endpoint, rows).min() for endpoint, rows in piece.items())
            if speed:
                due = (reached - first).total_seconds() / speed
                time.sleep(max(0.0, started + due - time.monotonic()))
            sent = [pool.submit(_send, clients[endpoint], endpoint, rows) for endpoint, rows in piece.items()]
            for future in sent:
                future.result()
            on_slice(sum(map(len, piece.values())), reached)
    return time.monotonic() - started


def _times(flights: Flights, endpoint: str, rows: pd.DataFrame) -> "pd.Series[pd.Timestamp]":
    times: pd.Series[pd.Timestamp] = rows[flights.data.EVENT_TIME[endpoint]]
    return times


def _send(client: Client, endpoint: str, rows: pd.DataFrame) -> None:
    client.log(WEBHOOK, endpoint, rows, batch_size=BATCH, retry_timeout=RETRY_SECONDS)
