"""The cases of the benchmark of the write path: definitions, events, and the values that must be served at the end."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any

import numpy as np
import orjson
import pandas as pd

from caraway import Average, Count, F, Max, Stddev, Sum, connectors, dataset, featureset, meta, pipeline
from caraway import field as dataset_field
from caraway.apps.demo.example import WEBHOOK, load_example
from caraway.datasets import Dataset
from caraway.dtypes import Continuous
from caraway.featuresets import Featureset
from caraway.lib.params import inputs

BATCH = 1000
OWNER = "bench@example.com"
HOUR = pd.Timedelta("1h")
LATE_MINUTES = 15
# Warm-up events are of a time that no window at the end includes, and of keys that no later event has.
LONG_AGO = pd.Timestamp("2012-01-01T00:00:00Z")
BEGIN = pd.Timestamp("2026-01-01T00:00:00Z")
# The time over which the events of a case are spread: more than its longest window, so that rows leave windows too.
SPREAD = pd.Timedelta("30d")
# A window counts rows up to its length of age, which is cut to whole seconds.
SECOND = pd.Timedelta("1s")
SPANS = {"1h": 1, "1d": 24, "7d": 7 * 24, "28d": 28 * 24}
FUNCTIONS: Mapping[str, Any] = {"count": Count, "sum": Sum, "average": Average, "stddev": Stddev, "max": Max}
# The most keys whose values one question asks for.
ASKED = 200
ACCOUNTS, COUNTRIES = 10_000, 50

webhook = connectors.Webhook(name="bench")


@dataclass(frozen=True)
class Question:
    """The values of one feature that must be served as of a time, by key."""

    input: str
    output: str
    at: pd.Timestamp
    wanted: Mapping[Any, float]


@dataclass
class Bodies:
    """Encoded requests in a temporary file, so that sending millions of events needs no memory and no encoding."""

    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, body: bytes) -> None:
        """Append a body."""
        self.spans.append((self.file.tell(), len(body)))
        self.file.write(body)
        self.file.flush()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case: the definitions, the first events, those of the warm-up and of the measurement, and what must be served.

    `warm_up` returns bodies of that many events; `warmed` the questions that are answered once they are served.
    """

    datasets: Sequence[Dataset]
    featuresets: Sequence[Featureset]
    first: Sequence[bytes]
    warm_up: Callable[[int], Bodies]
    warmed: Callable[[int], Sequence[Question]]
    events: int
    bodies: Bodies
    questions: Sequence[Question]


def encode(connector: str, endpoint: str, rows: pd.DataFrame, bodies: Bodies | None = None) -> Bodies:
    """Return the bodies of requests with the rows, `BATCH` in each; they are added to `bodies` if these are given."""
    bodies = bodies or Bodies()
    for start in range(0, len(rows), BATCH):
        part = rows.iloc[start : start + BATCH]
        data = {
            name: [at.isoformat() for at in column] if column.dtype.kind == "M" else column.tolist()
            for name, column in part.items()
        }
        bodies.add(orjson.dumps({"webhook": connector, "endpoint": endpoint, "data": data}))
    return bodies


def demo(events: int) -> Case:
    """Return the demo's five jobs and eight indexes, over the departures of January 2013, again and again."""
    flights = load_example()
    departures = _departures(flights.tables(months=1)["departures"], events)

    def warm_up(count: int) -> Bodies:
        early = departures.head(count).assign(
            flight_id="warm-up", origin="warm-up", carrier="warm-up", dest="warm-up", departed=LONG_AGO
        )
        return encode(WEBHOOK, "departures", early)

    end = departures["departed"].max()
    hour, day, week = (departures[departures["departed"] > end - hours * HOUR - SECOND] for hours in (1, 24, 7 * 24))
    late = (week["delay"] > LATE_MINUTES).groupby(week["carrier"]).mean()
    return Case(
        datasets=flights.datasets,
        featuresets=flights.featuresets,
        first=[],
        warm_up=warm_up,
        warmed=lambda count: [Question("Origin.origin", "Origin.departures_1h", LONG_AGO, {"warm-up": count})],
        events=len(departures),
        bodies=encode(WEBHOOK, "departures", departures),
        questions=[
            Question("Origin.origin", "Origin.mean_delay_1d", end, day.groupby("origin")["delay"].mean().to_dict()),
            Question("Origin.origin", "Origin.departures_1h", end, hour.groupby("origin").size().to_dict()),
            Question("Risk.carrier", "Risk.carrier_late_share_7d", end, late.to_dict()),
        ],
    )


def _departures(month: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return January's departures again and again, each time 31 days later, in order of time."""
    rounds = [
        month.assign(
            flight_id=month["flight_id"] + f"+{number}", departed=month["departed"] + number * pd.Timedelta("31d")
        )
        for number in range(-(-count // len(month)))
    ]
    return pd.concat(rounds, ignore_index=True).head(count).sort_values("departed", ignore_index=True)


@meta(owner=OWNER)
@connectors.source(webhook.endpoint("payments"), disorder="14d", cdc="append")
@dataset
class Payments:
    """Payments of accounts."""

    account: int
    amount: float
    at: datetime = dataset_field(timestamp=True)


@meta(owner=OWNER)
@connectors.source(webhook.endpoint("accounts"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Accounts:
    """The country of each account."""

    account: int = dataset_field(key=True)
    country: int
    at: datetime = dataset_field(timestamp=True)


def windows(events: int, keys: int) -> Case:
    """Return one pipeline with five functions over four windows of each of `keys` accounts."""
    names = [f"{function}_{span}" for function in FUNCTIONS for span in SPANS]

    @inputs(Payments)
    def aggregate(cls: Any, payments: Any) -> Any:
        del cls
        return payments.groupby("account").aggregate(
            **{
                f"{name}_{span}": function(window=Continuous(span), **_arguments(name))
                for name, function in FUNCTIONS.items()
                for span in SPANS
            }
        )

    spending = _aggregated("Spending", "account", names, aggregate)
    features = _features("Spent", "account", {name: getattr(spending, name) for name in names})
    payments = _payments(events, keys)
    return _case(
        [Payments, spending],
        features,
        payments,
        warmed=lambda count: [Question("Spent.account", "Spent.count_1h", LONG_AGO, {-1: count})],
        questions=_spent(payments),
    )


def joined(events: int) -> Case:
    """Return an as-of join of payments with their accounts, then two aggregates of each country."""

    @inputs(Payments, Accounts)
    def aggregate(cls: Any, payments: Any, accounts: Any) -> Any:
        del cls
        known = payments.join(accounts, how="inner", on=["account"])
        return known.groupby("country").aggregate(
            count_1d=Count(window=Continuous("1d")), sum_1d=Sum(of="amount", window=Continuous("1d"))
        )

    names = ["count_1d", "sum_1d"]
    by_country = _aggregated("ByCountry", "country", names, aggregate)
    features = _features("Country", "country", {name: getattr(by_country, name) for name in names})
    payments = _payments(events, ACCOUNTS)
    day = payments[payments["at"] > payments["at"].max() - 24 * HOUR - SECOND]
    of_day = day["amount"].groupby(day["account"] % COUNTRIES)
    end = payments["at"].max()
    # The account -1 of the warm-up is the only one of its country.
    accounts = pd.DataFrame({"account": [-1, *range(ACCOUNTS)]})
    accounts["country"] = np.where(accounts["account"] < 0, -1, accounts["account"] % COUNTRIES)
    register = encode("bench", "accounts", accounts.assign(at=LONG_AGO - HOUR))
    return _case(
        [Payments, Accounts, by_country],
        features,
        payments,
        warmed=lambda count: [Question("Country.country", "Country.count_1d", LONG_AGO, {-1: count})],
        questions=[
            Question("Country.country", "Country.count_1d", end, of_day.size().to_dict()),
            Question("Country.country", "Country.sum_1d", end, of_day.sum().to_dict()),
        ],
        first=list(read(register)),
    )


def read(bodies: Bodies) -> Iterator[bytes]:
    """Yield the bodies of a file one after the other."""
    for start, length in bodies.spans:
        bodies.file.seek(start)
        yield bodies.file.read(length)


def _case(
    datasets: Sequence[Dataset],
    features: Featureset,
    payments: pd.DataFrame,
    *,
    warmed: Callable[[int], Sequence[Question]],
    questions: Sequence[Question],
    first: Sequence[bytes] = (),
) -> Case:
    def warm_up(count: int) -> Bodies:
        early = pd.DataFrame({"account": -1, "amount": 1.0, "at": LONG_AGO}, index=range(count))
        return encode("bench", "payments", early)

    return Case(
        datasets=datasets,
        featuresets=[features],
        first=first,
        warm_up=warm_up,
        warmed=warmed,
        events=len(payments),
        bodies=encode("bench", "payments", payments),
        questions=questions,
    )


def _payments(events: int, keys: int) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "account": random.integers(0, keys, events),
            # Cents, as amounts are.
            "amount": random.integers(1, 100_000, events) / 100,
            "at": BEGIN + pd.to_timedelta(np.arange(events) * (SPREAD.value // events) // 1000, unit="us"),
        }
    )


def _spent(payments: pd.DataFrame) -> list[Question]:
    """Return questions about the last keys that occur, which are served last."""
    end = payments["at"].max()
    asked = payments["account"].iloc[::-1].drop_duplicates().head(ASKED)
    theirs = payments[payments["account"].isin(asked)]
    found = []
    for span, hours in SPANS.items():
        within = theirs[theirs["at"] > end - hours * HOUR - SECOND].groupby("account")["amount"]
        wanted = {
            "count": within.size(),
            "sum": within.sum(),
            "average": within.mean(),
            "stddev": within.std(ddof=0),
            "max": within.max(),
        }
        found += [
            Question("Spent.account", f"Spent.{name}_{span}", end, values.to_dict()) for name, values in wanted.items()
        ]
    return found


def _arguments(function: str) -> dict[str, Any]:
    if function == "count":
        return {}
    return {"of": "amount"} if function == "sum" else {"of": "amount", "default": -1.0}


def _aggregated(name: str, key: str, names: Sequence[str], aggregate: Any) -> Any:
    types = {field: int if field.startswith("count") else float for field in names}
    body = {
        "__annotations__": {key: int, **types, "at": datetime},
        "__module__": __name__,
        key: dataset_field(key=True),
        "at": dataset_field(timestamp=True),
        "aggregate": pipeline(aggregate),
    }
    return meta(owner=OWNER)(dataset(type(name, (), body), index=True))


def _features(name: str, key: str, fields: Mapping[str, Any]) -> Any:
    counts = {field: field.startswith("count") for field in fields}
    body = {
        "__annotations__": {key: int, **{field: int if count else float for field, count in counts.items()}},
        "__module__": __name__,
        **{name: F(found, default=0 if counts[name] else -1.0) for name, found in fields.items()},
    }
    return meta(owner=OWNER)(featureset(type(name, (), body)))
