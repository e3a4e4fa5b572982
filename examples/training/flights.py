"""Rows to ask for: each flight some time before it is due, with what its schedule says; and the labels."""

from typing import Any

import numpy as np
import pandas as pd

from caraway.client import Client
from caraway.featuresets import Feature, Featureset
from examples.flights import data
from examples.flights.definitions import DATASETS, FEATURESETS, Aircraft, Destination, Flight, Origin, Risk

# A timetable tells these long before a flight, so that whoever asks has them. `Flight.flight_id` would do as the only
# input as well, but the demo's schedule bears the time at which a flight is due, and says nothing before.
INPUTS = [Flight.carrier, Flight.origin, Flight.dest, Flight.tailnum]
# The features that follow from these: how the airport, the carrier and the aircraft have been doing until then.
OUTPUTS: list[Feature | Featureset] = [
    Origin,
    Risk.carrier_late_share_7d,
    Destination.altitude,
    Destination.aircraft,
    Aircraft.seats,
    Aircraft.age,
    Aircraft.last_delay,
]
# The column with the time as of which a row's features are computed.
AT = "at"
LATE_MINUTES = 15
# Events are sent in slices in which all endpoints have reached the same time, since no event may be 14 days behind
# others (the `disorder` of the sources).
SLICE = 5000


def rows_of(flights: pd.DataFrame, at: "pd.Series[pd.Timestamp] | pd.Timestamp") -> pd.DataFrame:
    """Return the rows to ask for: the inputs, the time, and the hour at which a flight is due, in New York."""
    inputs = {feature.fqn(): flights[feature.fqn().partition(".")[2]] for feature in INPUTS}
    hour = flights["due"].dt.tz_convert("America/New_York").dt.hour
    return pd.DataFrame({**inputs, "hour": hour, AT: at})


def labelled(tables: dict[str, pd.DataFrame], ahead: pd.Timedelta) -> pd.DataFrame:
    """Return the rows of all flights that have left, as of `ahead` before they were due, with their labels.

    The columns beside those of `rows_of` are `late`, `due` and `departed`, when the label became known. Flights that
    were cancelled have no label.
    """
    left = tables["departures"][["flight_id", "delay", "departed"]]
    flights = tables["schedule"].merge(left, on="flight_id")
    rows = rows_of(flights, flights["due"] - ahead)
    return rows.assign(late=flights["delay"] > LATE_MINUTES, due=flights["due"], departed=flights["departed"])


def between(
    tables: dict[str, pd.DataFrame], after: pd.Timestamp | None, until: pd.Timestamp | None
) -> dict[str, pd.DataFrame]:
    """Return the events after a time and up to another one; None is the begin or the end."""
    found = {}
    for name, rows in tables.items():
        times = rows[data.EVENT_TIME[name]]
        found[name] = rows[(times > (after or times.min() - pd.Timedelta("1us"))) & (times <= (until or times.max()))]
    return found


def are_sent(client: Client, tables: dict[str, pd.DataFrame]) -> bool:
    """Return whether the stack has these events already.

    Raises:
        RuntimeError: It has some of them. A departure that is sent twice counts twice, so they can't all be sent.
    """
    ids = tables["schedule"]["flight_id"]
    _, known = client.lookup("FlightConditions", pd.DataFrame({"flight_id": [ids.iloc[0], ids.iloc[-1]]}))
    if known.any() and not known.all():
        raise RuntimeError(
            "this stack has a part of these flights already, and departures that are sent twice would count twice: "
            "start one with a new data folder, by `caraway up --data <folder>`"
        )
    return bool(known.all())


def send(client: Client, tables: dict[str, pd.DataFrame]) -> None:
    """Send events, and wait until they are served."""
    given = {name: rows.reset_index(drop=True) for name, rows in tables.items() if len(rows)}
    for piece in data.in_event_order(given, SLICE) if given else ():
        for endpoint, rows in piece.items():
            client.log("flights", endpoint, rows)
    client.wait()


def commit(client: Client) -> None:
    """Commit the definitions of the flights; a stack that has them stays as it is."""
    client.commit("Flights out of New York", DATASETS, FEATURESETS, incremental=True, wait=True)


def different(served: pd.DataFrame, trained: pd.DataFrame) -> list[str]:
    """Return the features of which a value isn't the same to the bit, of those that were served."""
    return [name for name in served.columns if _bits(served[name]) != _bits(trained[name])]


def _bits(column: "pd.Series[Any]") -> tuple[list[bool], object]:
    """Return where a column is null, and its values, of which floats are as bytes: 0.0 and -0.0 differ then."""
    known = column.dropna()
    values = known.to_numpy(np.float64).tobytes() if pd.api.types.is_float_dtype(known.dtype) else known.tolist()
    return column.isna().tolist(), values
