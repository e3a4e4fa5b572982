"""Repeated queries until the served values have settled, since answers are eventually consistent."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from caraway.apps.demo.agreement import Agreement, compare
from caraway.apps.demo.example import Flights
from caraway.apps.demo.http import DemoConnection
from caraway.client import Client
from caraway.errors import RemoteError, UnavailableError

# The number of flights in one query.
AT_ONCE = 500
# The number of flights that are queried first. Other flights are queried only once the values of these agree, since
# queries of all flights would slow down the jobs that still catch up.
PROBED = 40
# After this many seconds without any change, no event can still be on its way. The time covers a crash of the engine,
# which is back after some 20 s, or later on a busy machine.
UNCHANGED_SECONDS = 60.0
POLL_SECONDS = 0.25
REPORT_SECONDS = 2.0

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementCheck:
    """Flights (rows of the schedule) with their expected features at the time when they are due."""

    flights: Flights
    schedule: pd.DataFrame
    expected: pd.DataFrame

    def ask(self, client: Client) -> Agreement:
        """Query the flights, and compare the served values with the expected ones."""
        served = pd.concat(self._served(client), ignore_index=True)
        return compare(served, self.expected, [str(name) for name in self.schedule["flight_id"]])

    def sample(self, count: int) -> "AgreementCheck":
        """Return a check of some of the flights, spread over the whole time."""
        step = max(1, len(self.schedule) // count)
        return AgreementCheck(
            flights=self.flights, schedule=self.schedule.iloc[::step], expected=self.expected.iloc[::step]
        )

    def _served(self, client: Client) -> Iterator[pd.DataFrame]:
        key = str(self.flights.key.fqn())
        for start in range(0, len(self.schedule), AT_ONCE):
            rows = self.schedule.iloc[start : start + AT_ONCE].reset_index(drop=True)
            asked = pd.DataFrame({key: rows["flight_id"]})
            yield client.query([self.flights.key], self.flights.featuresets, asked, timestamps=rows["due"])


def settle(
    check: AgreementCheck, url: str, *, report: Notify, unchanged_seconds: float = UNCHANGED_SECONDS
) -> Agreement:
    """Compare until all values agree, or until no event can still be on its way.

    The comparison ends after `unchanged_seconds` without a change. `report` is called every two seconds with a line
    about the missing values. Raises `CarawayError` if the server refuses, or was unreachable for too long.
    """
    with Client(url) as client:
        _wait(check.sample(PROBED), client, url, report, unchanged_seconds)
        return _wait(check, client, url, report, unchanged_seconds)


def _wait(check: AgreementCheck, client: Client, url: str, report: Notify, unchanged_seconds: float) -> Agreement:
    started = changed_at = reported_at = time.monotonic()
    last: Agreement | None = None
    while True:
        keep_trying = time.monotonic() - changed_at < unchanged_seconds
        agreement, missing = _ask(check, client, keep_trying=keep_trying)
        now = time.monotonic()
        if agreement is not None:
            if last is None or agreement.disagreements != last.disagreements:
                last, changed_at = agreement, now
            if not agreement.disagreements or not keep_trying:
                return agreement
        if now - reported_at >= REPORT_SECONDS:
            reported_at = now
            report(f"{now - started:6.1f} s  waiting for {missing}{_lag(url)}")
        time.sleep(POLL_SECONDS)


def _ask(check: AgreementCheck, client: Client, *, keep_trying: bool) -> tuple[Agreement | None, str]:
    """Return the agreement, and what is missing as text.

    The agreement is None if the server is unreachable. Without `keep_trying` that raises an error.
    """
    try:
        agreement = check.ask(client)
    except (UnavailableError, RemoteError) as error:
        if not keep_trying:
            raise
        return None, f"the server ({error})"
    features = sorted({wrong.feature for wrong in agreement.disagreements})
    more = f" and {len(features) - 3} more" if len(features) > 3 else ""
    wrong = f"{len(agreement.disagreements):,} of {agreement.total:,} values"
    return agreement, f"{wrong}: {', '.join(features[:3])}{more}"


def _lag(url: str) -> str:
    """Return a text about the lag of indexes; empty if there is none, or the server doesn't answer."""
    try:
        with DemoConnection(url) as connection:
            indexes = connection.get("/status")["index"]["indexes"]
    except (UnavailableError, RemoteError):
        return ""
    behind = {index["dataset"]: index["lag"] for index in indexes if index["lag"]}
    listed = ", ".join(f"{dataset} {lag:,}" for dataset, lag in behind.items())
    return f"; records to be indexed: {listed}" if behind else "; all that the jobs gave is indexed"
