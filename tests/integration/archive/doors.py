"""Datasets whose topics are archived, and rows of them."""


# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, assignment"

from datetime import UTC, datetime, timedelta

import pandas as pd

from caraway import dataset, field
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset

__owner__ = "archive@example.com"

BATCH = 300
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def definitions(version: int) -> list[Dataset]:
    """Define two datasets; topics of different versions have different names, since all tests share a broker."""
    hook = Webhook(name="doors")

    @source(hook.endpoint("opened"), disorder="14d", cdc="append")
    @dataset(index=False, version=version)
    class Opened:
        number: int
        door: str
        at: datetime

    @source(hook.endpoint("doors"), disorder="14d", cdc="upsert")
    @dataset(index=True, version=version)
    class Doors:
        door: str = field(key=True, erase_key=True)
        number: int
        at: datetime

    return [Opened, Doors]


def rows(first: int) -> pd.DataFrame:
    numbers = range(first, first + BATCH)
    return pd.DataFrame(
        {
            "number": numbers,
            "door": [f"d{number % 7}" for number in numbers],
            "at": [BEGIN + timedelta(minutes=number * 37 % 100_000) for number in numbers],
        }
    )
