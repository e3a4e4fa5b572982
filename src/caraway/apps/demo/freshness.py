"""The freshness of served values: the time from when an event is due to be logged until a query returns it."""

import secrets
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from caraway.apps.demo.example import WEBHOOK
from caraway.apps.demo.figures import Quantiles, quantiles
from caraway.apps.demo.http import DemoConnection

# The number of threads that send events, so that a slow answer doesn't delay the next event. With 16 threads at 200
# events/s, each answer may take 80 ms.
SENDERS = 16
# Seconds between two queries. On average the pause makes the measured time longer by half of itself. Without it the
# queries would occupy a core, which the measured stack needs.
IDLE_SECONDS = 0.001
# Seconds for which the last events are awaited after all have been sent.
TIMEOUT_SECONDS = 30.0
# Each event has an airport of its own, so the greatest delay of the airport's last hour is the delay of this event.
INPUT, OUTPUT = "Origin.origin", "Origin.max_delay_1h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The outcome of a run: `log` is the time until an event was durable, `served` until a query returned its value."""

    rate: float
    log: Quantiles
    served: Quantiles
    lost: int


def measure_freshness(
    url: str,
    *,
    rate: float,
    seconds: float,
    watched: tuple[str, str] = (INPUT, OUTPUT),
    every: int = 1,
    together: int = 1,
) -> Freshness:
    """Log `rate` events a second, and query the value of each over a second connection.

    Events are sent at their due times even if earlier answers are late (open loop), and an event's time counts from
    when it was due, so that a stall of the server shows in full. If a request has several events, it is sent when the
    last of them is due. The events flow through all pipelines of the flights
    and are read from a windowed aggregate.

    Args:
        url: The server.
        rate: Events a second.
        seconds: The duration of the run.
        watched: The feature that takes an airport, and the one that returns its greatest delay.
        every: One of this number of events is watched, since the queries for them are load for the server, too.
        together: Events of one request.

    Raises `CarawayError` if the server refuses a request.
    """
    run = Run(f"~{secrets.token_hex(4)}")
    count = int(rate * seconds)
    started = time.perf_counter() + 0.2
    with ThreadPoolExecutor(SENDERS + 1) as pool:
        watching = pool.submit(_watch, url, run, watched)
        numbers = iter(range(0, count, together))
        number_lock = threading.Lock()

        def send() -> None:
            with DemoConnection(url) as connection:
                while True:
                    with number_lock:
                        first = next(numbers, None)
                    if first is None:
                        return
                    sent = range(first, min(first + together, count))
                    due = {number: started + number / rate for number in sent}
                    time.sleep(max(0.0, due[sent[-1]] - time.perf_counter()))
                    run.due |= {run.key(number): at for number, at in due.items() if number % every == 0}
                    connection.post("/log", run.request(sent))
                    done = time.perf_counter()
                    run.logged += [done - at for at in due.values()]

        senders = [pool.submit(send) for _ in range(SENDERS)]
        try:
            for sender in senders:
                sender.result()
        finally:
            run.finished_at = time.perf_counter()
        watching.result()
    lost = len(range(0, count, every)) - len(run.served)
    return Freshness(rate=rate, log=quantiles(run.logged), served=quantiles(run.served), lost=lost)


class Run:
    """The events of a run. Senders add watched events to `due`; `_watch` removes those whose value was served."""

    def __init__(self, name: str) -> None:
        """Mark all keys with `name`, so that a run doesn't see the values of another one."""
        self.name = name
        self.due: dict[str, float] = {}
        self.logged: list[float] = []
        self.served: list[float] = []
        self.finished_at: float | None = None

    def key(self, number: int) -> str:
        """Return the airport of an event."""
        return f"{self.name}-{number}"

    def request(self, numbers: Iterable[int]) -> dict[str, object]:
        """Return the body of the request that logs some events."""
        return {"webhook": WEBHOOK, "endpoint": "departures", "data": [self._event(number) for number in numbers]}

    def _event(self, number: int) -> dict[str, object]:
        """Return an event: a departure, now."""
        return {
            "flight_id": self.key(number),
            "carrier": self.name,
            "origin": self.key(number),
            "dest": self.name,
            "tailnum": f"{self.name}-{number % 50}",
            "delay": number,
            "departed": datetime.now(UTC).isoformat(),
        }

    def over(self) -> bool:
        """Return whether no event is left to wait for."""
        if self.finished_at is None:
            return False
        return not self.due or time.perf_counter() > self.finished_at + TIMEOUT_SECONDS


def _watch(url: str, run: Run, watched: tuple[str, str]) -> None:
    given, wanted = watched
    with DemoConnection(url) as connection:
        while not run.over():
            time.sleep(IDLE_SECONDS)
            waiting = list(run.due)
            if not waiting:
                continue
            answer = connection.post("/query", {"inputs": [given], "outputs": [wanted], "data": {given: waiting}})
            now = time.perf_counter()
            for key, value in zip(waiting, answer[wanted], strict=True):
                if value is not None:
                    run.served.append(now - run.due.pop(key))
