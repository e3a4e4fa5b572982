"""Further datasets over the flights' departures, for measurements with many jobs and through longer pipelines."""

from datetime import datetime
from typing import Any

from caraway.apps.demo.example import Flights
from caraway.datasets import Average, Dataset, Max, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.featuresets import Featureset, feature, featureset
from caraway.lib import inputs, meta

OWNER = "bench@example.com"
JOINED = "ByMaker.origin", "ByMaker.max_delay_1h"
SINGLE = "ByAirport.origin", "ByAirport.max_delay_1h"


def spread(flights: Flights, count: int) -> list[Dataset]:
    """Return `count` datasets, each with a job of its own: each second one joins."""
    return [_joined(flights, f"Joined{n}") if n % 2 else _averaged(flights, f"Averaged{n}") for n in range(count)]


def by_maker(flights: Flights) -> tuple[list[Dataset], list[Featureset]]:
    """Return an aggregate behind a join, keyed by the airport, and the feature that reads it."""
    joined = _joined(flights, "DelaysByMaker")

    class ByMaker:
        origin: str
        max_delay_1h: int | None = feature(joined.max_delay_1h)

    return [joined], [_with_owner(featureset(ByMaker))]


def by_airport(flights: Flights) -> list[Featureset]:
    """Return the feature that reads the aggregate over the departures of an airport."""

    class ByAirport:
        origin: str
        max_delay_1h: int | None = feature(flights.definitions.OriginDelays.max_1h)

    return [_with_owner(featureset(ByAirport))]


def _averaged(flights: Flights, name: str) -> Dataset:
    class Averaged:
        origin: str = field(key=True)
        mean_1h: float
        departed: datetime

        @pipeline
        @inputs(flights.definitions.Departures)
        def by_origin(cls, departures: Any) -> Any:
            return departures.groupby("origin").aggregate(mean_1h=Average(of="delay", window=Continuous("1h")))

    return _named(Averaged, name)


def _joined(flights: Flights, name: str) -> Dataset:
    class Joined:
        origin: str = field(key=True)
        max_delay_1h: int | None
        departed: datetime

        @pipeline
        @inputs(flights.definitions.Departures, flights.definitions.Planes)
        def by_origin(cls, departures: Any, planes: Any) -> Any:
            known = departures.join(planes, how="left", on=["tailnum"], fields=["manufacturer"])
            return known.groupby("origin").aggregate(max_delay_1h=Max(of="delay", window=Continuous("1h")))

    return _named(Joined, name)


def _named(cls: type, name: str) -> Dataset:
    cls.__name__ = cls.__qualname__ = name
    return _with_owner(dataset(index=True)(cls))


def _with_owner(entity: Any) -> Any:
    return meta(owner=OWNER)(entity)
