"""The whole stack, started once for all tests, and eight days of flights that they replay piece by piece."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from caraway.apps.demo.agreement import Agreement
from caraway.apps.demo.example import Flights, load_example
from caraway.apps.demo.replay import replay
from caraway.apps.demo.settle import AgreementCheck, settle
from caraway.apps.stack.stack import Stack
from caraway.client import Client, find_server
from caraway.process.children.part import PartState, PartStatus
from caraway.process.settings.settings import load_settings
from tests.timeouts import deadline_in, scaled

HERE = Path(__file__).parent
DAYS = 8
# Three o'clock at night in New York: pieces end between two days.
CUTS = [pd.Timestamp(f"2013-01-{day:02}T08:00:00Z") for day in (3, 4, 5, 6, 7, 8)]
START_SECONDS = 180.0
# Nothing comes while an engine starts again: seen to take 66 s with a load of 40 on two cores.
UNCHANGED_SECONDS = 240.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(600))


@dataclass
class World:
    """A running stack and the part of the flights that it has seen. Pieces are replayed in order, each once."""

    stack: Stack
    flights: Flights
    tables: dict[str, pd.DataFrame]
    replayed: int = 0
    reports: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.stack.url

    @property
    def headers(self) -> dict[str, str]:
        """Headers for requests that aren't made by Caraway's client."""
        return {"Authorization": f"Bearer {find_server(self.url).token}"}

    def part(self, name: str) -> PartStatus:
        return next(part for part in self.stack.status() if part.name == name)

    def piece(self, number: int) -> dict[str, pd.DataFrame]:
        """Return the events of a piece: those between two cuts."""
        times = {name: table[self.flights.data.EVENT_TIME[name]] for name, table in self.tables.items()}
        low = CUTS[number - 1] if number else pd.Timestamp.min.tz_localize("UTC")
        high = CUTS[number] if number < len(CUTS) else pd.Timestamp.max.tz_localize("UTC")
        return {
            name: table[(times[name] > low) & (times[name] <= high)].reset_index(drop=True)
            for name, table in self.tables.items()
        }

    def ensure(self, number: int) -> None:
        """Replay the pieces up to this one that haven't been."""
        while self.replayed <= number:
            self.replay(self.replayed)

    def replay(self, number: int, **options: Any) -> None:
        """Replay the next piece."""
        assert number == self.replayed
        self.replayed += 1
        piece = {name: rows for name, rows in self.piece(number).items() if len(rows)}
        replay(self.flights, self.url, piece, **{"speed": 0.0, "on_slice": _silent, **options})

    def agree(self, number: int, count: int = 300) -> Agreement:
        """Compare flights of a piece with the oracle, as of when they were due."""
        schedule = self.piece(number)["schedule"]
        chosen = schedule.sample(min(count, len(schedule)), random_state=number).sort_index()
        expected = self.flights.expected(self.tables, list(chosen["flight_id"]))
        question = AgreementCheck(flights=self.flights, schedule=chosen, expected=expected)
        return settle(question, self.url, report=self.reports.append, unchanged_seconds=scaled(UNCHANGED_SECONDS))

    def wait_until_running(self, seconds: float = START_SECONDS) -> None:
        deadline = deadline_in(seconds)
        while any(part.state is not PartState.RUNNING for part in self.stack.status()):
            assert time.monotonic() < deadline, self.stack.status()
            time.sleep(0.1)

    def wait_for(self, happens: Callable[[], bool], seconds: float = 180.0) -> None:
        deadline = deadline_in(seconds)
        while not happens():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("caraway")
    flights = load_example()
    with Stack(load_settings(folder)) as stack:
        client = Client(stack.url)
        client.commit("Flights", flights.datasets, flights.featuresets)
        client.close()
        yield World(stack, flights, flights.tables(months=1, days=DAYS))


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client(world.url)
    yield client
    client.close()


def _silent(events: int, reached: pd.Timestamp) -> None:
    """Drop the progress of a replay."""
