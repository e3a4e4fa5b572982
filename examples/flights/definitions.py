"""Features of flights out of New York: what is known about a departure at the moment it is due.

Five sources feed five pipelines; the featuresets below turn one flight id into 37 features.
Everything here is plain user code: commit it with `client.commit(message, datasets, featuresets)`.
"""

from datetime import datetime
from typing import Optional

import numpy as np
import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Stddev, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, now, when
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "flights@example.com"

webhook = Webhook(name="flights")

# ---------------------------------------------------------------------------------------------------------------------
# What comes in


@source(webhook.endpoint("departures"), disorder="14d", cdc="append")
@dataset
class Departures:
    """A flight has left. How late it was is known only now, so the event bears the time of departure."""

    flight_id: str
    carrier: str
    origin: str
    dest: str
    tailnum: str
    delay: int  # minutes; negative if it left early
    departed: datetime


@source(webhook.endpoint("schedule"), disorder="14d", cdc="append")
@dataset
class ScheduledFlights:
    """A flight is due to leave, known beforehand."""

    flight_id: str
    carrier: str
    origin: str
    dest: str
    tailnum: Optional[str]
    distance: int  # miles
    due: datetime


@source(webhook.endpoint("weather"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Weather:
    """Weather at an airport, measured every hour or so."""

    airport: str = field(key=True)
    temperature: Optional[float]  # degrees Fahrenheit
    wind: Optional[float]  # miles per hour
    precipitation: float  # inches in the last hour
    visibility: float  # miles
    measured: datetime


@source(webhook.endpoint("planes"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Planes:
    """The register of aircraft. It doesn't know all of them, nor the age of each."""

    tailnum: str = field(key=True)
    built: Optional[int]
    manufacturer: str
    seats: int
    listed: datetime


@source(webhook.endpoint("airports"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Airports:
    """Airports by the code of the Federal Aviation Administration."""

    faa: str = field(key=True)
    name: str
    altitude: int  # feet
    listed: datetime


# ---------------------------------------------------------------------------------------------------------------------
# What is computed while it streams


@dataset(index=True)
class OriginDelays:
    """How punctual an airport has been in the last hours."""

    origin: str = field(key=True)
    mean_1h: float
    mean_6h: float
    mean_1d: float
    max_1h: Optional[int]
    max_6h: Optional[int]
    max_1d: Optional[int]
    stddev_1h: Optional[float]
    stddev_6h: Optional[float]
    stddev_1d: Optional[float]
    departures_1h: int
    departed: datetime

    @pipeline
    @inputs(Departures)
    def by_origin(cls, departures: Dataset):
        return departures.groupby("origin").aggregate(
            mean_1h=Average(of="delay", window=Continuous("1h")),
            mean_6h=Average(of="delay", window=Continuous("6h")),
            mean_1d=Average(of="delay", window=Continuous("1d")),
            max_1h=Max(of="delay", window=Continuous("1h")),
            max_6h=Max(of="delay", window=Continuous("6h")),
            max_1d=Max(of="delay", window=Continuous("1d")),
            stddev_1h=Stddev(of="delay", window=Continuous("1h"), default=None),
            stddev_6h=Stddev(of="delay", window=Continuous("6h"), default=None),
            stddev_1d=Stddev(of="delay", window=Continuous("1d"), default=None),
            departures_1h=Count(window=Continuous("1h")),
        )


@dataset(index=True)
class CarrierPunctuality:
    """The share of a carrier's flights that left more than 15 minutes late in the last week."""

    carrier: str = field(key=True)
    late_share_7d: float
    departed: datetime

    @pipeline
    @inputs(Departures)
    def by_carrier(cls, departures: Dataset):
        return (
            departures.assign(late=when(col("delay") > 15).then(1.0).otherwise(0.0).astype(float))
            .groupby("carrier")
            .aggregate(late_share_7d=Average(of="late", window=Continuous("7d")))
        )


@dataset(index=True)
class LastDepartures:
    """Where each aircraft went last, and how late it left."""

    tailnum: str = field(key=True)
    dest: str
    delay: int
    departed: datetime

    @pipeline
    @inputs(Departures)
    def newest(cls, departures: Dataset):
        return departures.select("tailnum", "dest", "delay").groupby("tailnum").latest()


@dataset(index=True)
class AircraftAway:
    """How many aircraft went to an airport last. One that leaves again is taken off the count where it was."""

    dest: str = field(key=True)
    aircraft: int
    departed: datetime

    @pipeline
    @inputs(LastDepartures)
    def by_destination(cls, last: Dataset):
        return last.groupby("dest").aggregate(aircraft=Count(window=Continuous("forever")))


@dataset(index=True)
class FlightConditions:
    """Each scheduled flight with the weather at its origin when it is due."""

    flight_id: str = field(key=True)
    carrier: str
    origin: str
    dest: str
    tailnum: Optional[str]
    distance: int
    temperature: Optional[float]
    wind: Optional[float]
    precipitation: Optional[float]
    visibility: Optional[float]
    due: datetime

    @pipeline
    @inputs(ScheduledFlights, Weather)
    def with_weather(cls, flights: Dataset, weather: Dataset):
        return (
            flights.join(weather, how="left", left_on=["origin"], right_on=["airport"], within=("6h", "0s"))
            .groupby("flight_id")
            .latest()
        )


# ---------------------------------------------------------------------------------------------------------------------
# What is served


@featureset
class Flight:
    """The flight itself: all that is needed to ask is its id."""

    flight_id: str
    carrier: Optional[str] = F(FlightConditions.carrier)
    origin: Optional[str] = F(FlightConditions.origin)
    dest: Optional[str] = F(FlightConditions.dest)
    tailnum: Optional[str] = F(FlightConditions.tailnum)
    distance: int = F(FlightConditions.distance, default=0)
    temperature: Optional[float] = F(FlightConditions.temperature)
    wind: Optional[float] = F(FlightConditions.wind)
    precipitation: float = F(FlightConditions.precipitation, default=0.0)
    visibility: Optional[float] = F(FlightConditions.visibility)


@featureset
class Origin:
    """The airport that it leaves from, as it runs now."""

    origin: Optional[str] = F(Flight.origin)
    mean_delay_1h: float = F(OriginDelays.mean_1h, default=0.0)
    mean_delay_6h: float = F(OriginDelays.mean_6h, default=0.0)
    mean_delay_1d: float = F(OriginDelays.mean_1d, default=0.0)
    max_delay_1h: Optional[int] = F(OriginDelays.max_1h)
    max_delay_6h: Optional[int] = F(OriginDelays.max_6h)
    max_delay_1d: Optional[int] = F(OriginDelays.max_1d)
    stddev_delay_1h: Optional[float] = F(OriginDelays.stddev_1h)
    stddev_delay_6h: Optional[float] = F(OriginDelays.stddev_6h)
    stddev_delay_1d: Optional[float] = F(OriginDelays.stddev_1d)
    departures_1h: int = F(OriginDelays.departures_1h, default=0)
    getting_worse: bool = F(col("mean_delay_1h") > col("mean_delay_6h"))


@featureset
class Destination:
    """The airport that it goes to."""

    faa: Optional[str] = F(Flight.dest)
    dest: Optional[str] = F(Flight.dest)
    name: str = F(Airports.name, default="unknown")
    altitude: Optional[int] = F(Airports.altitude)
    aircraft: int = F(AircraftAway.aircraft, default=0)


@featureset
class Aircraft:
    """The machine that flies it."""

    tailnum: Optional[str] = F(Flight.tailnum)
    built: Optional[int] = F(Planes.built)
    seats: Optional[int] = F(Planes.seats)
    manufacturer: str = F(Planes.manufacturer, default="unknown")
    age: Optional[int] = F(now().dt.year - col("built"))
    last_delay: Optional[int] = F(LastDepartures.delay)


@featureset
class Risk:
    """How likely it is to leave late, from all of the above."""

    carrier: Optional[str] = F(Flight.carrier)
    carrier_late_share_7d: float = F(CarrierPunctuality.late_share_7d, default=0.0)
    score: float
    is_late_risk: bool = F(col("score") > 0.5)

    @extractor
    @inputs(Origin.mean_delay_1h, "carrier_late_share_7d", Aircraft.last_delay, Flight.wind, Flight.visibility)
    @outputs("score")
    def combine(cls, ts: pd.Series, origin_delay, late_share, last_delay, wind, visibility):
        """Weigh what is known; what isn't counts as ordinary.

        With numpy: for a single row an operation of pandas takes 50 us, one of numpy 1 us.
        """
        points = (
            -2.0
            + 0.04 * origin_delay.to_numpy(float).clip(-10.0, 120.0)
            + 3.0 * late_share.to_numpy(float)
            + 0.01 * last_delay.to_numpy(float, na_value=0.0).clip(-10.0, 120.0)
            + 0.02 * wind.to_numpy(float, na_value=10.0)
            - 0.1 * visibility.to_numpy(float, na_value=10.0).clip(max=10.0)
        )
        return pd.Series(1.0 / (1.0 + np.exp(-points)), name="score")


DATASETS = [
    Departures,
    ScheduledFlights,
    Weather,
    Planes,
    Airports,
    OriginDelays,
    CarrierPunctuality,
    LastDepartures,
    AircraftAway,
    FlightConditions,
]
FEATURESETS = [Flight, Origin, Destination, Aircraft, Risk]
