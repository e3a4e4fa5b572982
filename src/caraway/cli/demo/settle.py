"""Asking until the served values have settled: a check of a system whose answers are eventually right."""

import time
from collections.abc import Callable, Iterator

import pandas as pd

from caraway.cli.demo.agreement import Agreement, compare
from caraway.cli.demo.example import Flights
from caraway.client import Client
from caraway.errors import RemoteError, UnavailableError

# Flights in one query.
AT_ONCE = 500
# Nothing may change for so long while an engine comes back from a crash: some 20 s, on a busy machine more.
UNCHANGED_SECONDS = 60.0
POLL_SECONDS = 0.5
TELL_SECONDS = 2.0


def settle(
    flights: Flights, url: str, chosen: pd.DataFrame, expected: pd.DataFrame, *, told: Callable[[str], None]
) -> Agreement:
    """Compare until all values agree, or until nothing has changed for so long that nothing can be on its way.

    Args:
        flights: The example.
        url: The server.
        chosen: Rows of the schedule.
        expected: Their features.
        told: Told what is waited for.

    Raises:
        CarawayError: The server refuses, or was away for too long.
    """
    client = Client(url)
    started = changed_at = told_at = time.monotonic()
    last: Agreement | None = None
    try:
        while True:
            now = time.monotonic()
            patient = now - changed_at < UNCHANGED_SECONDS
            agreement, missing = _compared(client, flights, chosen, expected, patient=patient)
            if agreement is not None:
                if last is None or agreement.disagreements != last.disagreements:
                    last, changed_at = agreement, now
                if not agreement.disagreements or not patient:
                    told(f"The values had settled {changed_at - started:.1f} s after the recomputation.")
                    return agreement
            if now - told_at >= TELL_SECONDS:
                told_at = now
                told(f"{now - started:6.1f} s  waiting for {missing}")
            time.sleep(POLL_SECONDS)
    finally:
        client.close()


def _compared(
    client: Client, flights: Flights, chosen: pd.DataFrame, expected: pd.DataFrame, *, patient: bool
) -> tuple[Agreement | None, str]:
    """Compare once; also say what is missing. None if the server is away, which only the patient accept."""
    try:
        served = pd.concat(_served(client, flights, chosen), ignore_index=True)
    except (UnavailableError, RemoteError) as error:
        if not patient:
            raise
        return None, f"the server ({error})"
    agreement = compare(served, expected, [str(name) for name in chosen["flight_id"]])
    features = sorted({wrong.feature for wrong in agreement.disagreements})
    return agreement, f"{len(agreement.disagreements):,} values, of {', '.join(features[:4])}"


def _served(client: Client, flights: Flights, chosen: pd.DataFrame) -> Iterator[pd.DataFrame]:
    key = str(flights.key.fqn())
    for start in range(0, len(chosen), AT_ONCE):
        rows = chosen.iloc[start : start + AT_ONCE].reset_index(drop=True)
        asked = pd.DataFrame({key: rows["flight_id"]})
        yield client.query([flights.key], flights.featuresets, asked, timestamps=rows["due"])
