"""The flights of `examples/flights`, loaded from where the repository or the wheel keeps them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pandas as pd

import caraway
from caraway.datasets import Dataset
from caraway.errors import CarawayError
from caraway.featuresets import Feature, Featureset

WEBHOOK = "flights"
PACKAGE = Path(caraway.__file__).parent
# In a clone the example is beside `src`, in a wheel inside of the package.
PLACES = (PACKAGE.parents[1] / "examples", PACKAGE / "_examples")


class ExampleError(CarawayError):
    """The example or its data can't be found."""

    code = "no_example"


@dataclass(frozen=True, slots=True)
class Flights:
    """The three modules of the example, with types."""

    definitions: ModuleType
    data: ModuleType
    oracle: ModuleType

    @property
    def datasets(self) -> list[Dataset]:
        """All datasets of the example."""
        datasets: list[Dataset] = self.definitions.DATASETS
        return datasets

    @property
    def featuresets(self) -> list[Featureset]:
        """All featuresets of the example."""
        featuresets: list[Featureset] = self.definitions.FEATURESETS
        return featuresets

    @property
    def key(self) -> Feature:
        """The one input feature of a query."""
        feature: Feature = self.definitions.Flight.flight_id
        return feature

    def tables(self, *, months: int, days: int = 31) -> dict[str, pd.DataFrame]:
        """Load the events, a frame for each endpoint. Raises `ExampleError` if the data isn't installed."""
        try:
            tables: dict[str, pd.DataFrame] = self.data.load(months=months, days=days)
        except FileNotFoundError as error:
            raise ExampleError(str(error)) from error
        return tables

    def slices(self, tables: Mapping[str, pd.DataFrame], size: int) -> Iterator[dict[str, pd.DataFrame]]:
        """Cut the events, merged by time, into slices of `size`."""
        slices: Iterator[dict[str, pd.DataFrame]] = self.data.in_event_order(tables, size)
        return slices

    def split(
        self, tables: Mapping[str, pd.DataFrame], at: pd.Timestamp
    ) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
        """Divide the events into those up to a time and those after it."""
        early, late = {}, {}
        for endpoint, rows in tables.items():
            is_early = rows[self.data.EVENT_TIME[endpoint]] <= at
            early[endpoint] = rows[is_early].reset_index(drop=True)
            late[endpoint] = rows[~is_early].reset_index(drop=True)
        return early, late

    def expected(self, tables: Mapping[str, pd.DataFrame], flight_ids: Sequence[str]) -> pd.DataFrame:
        """Return the expected features of some flights, computed without Caraway."""
        expected: pd.DataFrame = self.oracle.expected(tables, list(flight_ids))
        return expected


def load_example() -> Flights:
    """Import the example. Raises `ExampleError` if it isn't there."""
    place = next((place for place in PLACES if (place / "flights" / "definitions.py").is_file()), None)
    if place is None:
        raise ExampleError("The flights are not installed: run the demo in a clone of the repository.")
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    return Flights(
        definitions=import_module("flights.definitions"),
        data=import_module("flights.data"),
        oracle=import_module("flights.oracle"),
    )
