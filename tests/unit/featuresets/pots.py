"""Datasets and a featureset of plants in pots, on which other featuresets are tested."""

from datetime import datetime
from typing import Optional

from caraway.datasets import dataset, field
from caraway.featuresets import featureset

__owner__ = "module@example.com"


@dataset(index=True)
class Pots:
    pot: int = field(key=True)
    species: str
    moisture: Optional[float]
    tags: list[str]
    height: int
    at: datetime


@dataset(index=True)
class Shelves:
    room: str = field(key=True)
    shelf: int = field(key=True)
    pots: int
    at: datetime


@dataset
class Unindexed:
    pot: int = field(key=True)
    species: str
    at: datetime


@featureset
class Tap:
    pot: int
    maybe: Optional[int]
    pots: list[int]
