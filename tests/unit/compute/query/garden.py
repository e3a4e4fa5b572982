"""Definitions that the tests of queries share: pots with plants, their readings, and rules for species."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Optional

import pandas as pd

from caraway import Average, Count, Dataset, F, connectors, dataset, extractor, featureset, field, meta, pipeline
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.compute.query.model import Instants, QueryReader
from caraway.datasets import index
from caraway.dtypes import Continuous, between
from caraway.expr import col, lit, now
from caraway.graph.specs import Graph
from caraway.lib.params import inputs, outputs

hook = connectors.Webhook(name="garden")


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("pots"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Pots:
    pot: int = field(key=True)
    species: str
    size: Optional[float]
    bought: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("rules"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Rules:
    species: str = field(key=True)
    text: str
    water: int
    since: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("readings"), disorder="1h", cdc="append")
@dataset
class Readings:
    pot: int
    moisture: float
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@dataset(index=True)
class Moisture:
    pot: int = field(key=True)
    mean: float
    count: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Readings)
    def aggregate(cls, readings):
        return readings.groupby("pot").aggregate(
            mean=Average(of="moisture", window=Continuous("1h"), default=-1.0),
            count=Count(window=Continuous("1h")),
        )


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("online"), disorder="1h", cdc="upsert")
@index(online=True, offline=None)
@dataset
class OnlineOnly:
    pot: int = field(key=True)
    note: str
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@featureset
class Tap:
    pot: int
    litres: Optional[float]
    raw: str


@meta(owner="a@b.co")
@featureset
class State:
    pot: int = F(Tap.pot)
    species: str = F(Pots.species, default="fern")
    size: Optional[float] = F(Pots.size)
    mean: float = F(Moisture.mean, default=-1.0)
    count: int = F(Moisture.count, default=0)
    big: bool = F(col("size").fillnull(0.0) > 10.0)
    score: float = F(col("count") * 2)
    hour: int = F(now().dt.hour)
    answer: int = F(lit(42))
    advice: str
    water: int

    @extractor(deps=[Rules])
    @inputs("species", "big")
    @outputs("advice", "water")
    def advise(cls, ts, species, big):
        rows, _ = Rules.lookup(ts, species=species, fields=["text", "water"])
        return pd.DataFrame(
            {str(cls.advice): rows["text"].fillna("none"), "water": rows["water"].fillna(0), "unrelated": big}
        )


@meta(owner="a@b.co")
@featureset
class ByText:
    pot: str = F(Tap.raw)
    species: Optional[str] = F(Pots.species)


@meta(owner="a@b.co")
@featureset
class Notes:
    pot: int = F(Tap.pot)
    note: Optional[str] = F(OnlineOnly.note)


@meta(owner="a@b.co")
@featureset
class Faulty:
    broken: int
    nameless: int
    short: int
    wrong: int
    nulls: int
    shuffled: int
    shifted: int
    forbidden: Optional[str]
    small: between(int, 0, 5)  # type: ignore[valid-type]
    number: int
    misnamed: int
    first: int
    second: int

    @extractor
    @inputs(Tap.pot)
    @outputs("number")
    def give_number(cls, ts, pot):
        return 7

    @extractor
    @inputs(Tap.pot)
    @outputs("misnamed")
    def misname(cls, ts, pot):
        return pot.rename("another")

    @extractor
    @inputs(Tap.pot)
    @outputs("first", "second")
    def give_two(cls, ts, pot):
        return pd.DataFrame({"first": ["a"] * len(pot)})

    @extractor
    @inputs(Tap.pot)
    @outputs("broken")
    def explode(cls, ts, pot):
        return pot // 0 if pot.empty else 1 / 0

    @extractor
    @inputs(Tap.pot)
    @outputs("nameless")
    def give_no_name(cls, ts, pot):
        return pd.Series([1] * len(pot))

    @extractor
    @inputs(Tap.pot)
    @outputs("short")
    def give_less(cls, ts, pot):
        return pd.Series([1] * (len(pot) - 1), name="short")

    @extractor
    @inputs(Tap.pot)
    @outputs("wrong")
    def give_text(cls, ts, pot):
        return pot.astype(str).rename("wrong")

    @extractor
    @inputs(Tap.pot)
    @outputs("nulls")
    def give_null(cls, ts, pot):
        return pd.Series([None] * len(pot), dtype="Int64", name="nulls")

    @extractor
    @inputs(Tap.pot)
    @outputs("shuffled")
    def shuffle(cls, ts, pot):
        return pot.rename("shuffled").iloc[::-1]

    @extractor
    @inputs(Tap.pot)
    @outputs("shifted")
    def shift(cls, ts, pot):
        return pd.Series(pot.tolist(), index=range(5, 5 + len(pot)), name="shifted")

    @extractor
    @inputs(Tap.pot)
    @outputs("forbidden")
    def look_elsewhere(cls, ts, pot):
        return Pots.lookup(ts, pot=pot, fields=["species"])[0]["species"].rename("forbidden")

    @extractor
    @inputs(Tap.pot)
    @outputs("small")
    def give_large(cls, ts, pot):
        return (pot * 3).rename("small")


DATASETS = (Pots, Rules, Readings, Moisture, OnlineOnly)
FEATURESETS = (Tap, State, ByText, Notes, Faulty)


class DictReader(QueryReader):
    """A reader of datasets in a dictionary from (dataset, key values) to [(time, row)]. RocksDB has its own tests."""

    def __init__(self, rows: Mapping[tuple[str, tuple[Any, ...]], Sequence[tuple[int, Mapping[str, Any]]]]) -> None:
        self.rows = rows
        self.calls: list[tuple[str, int, tuple[str, ...]]] = []

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        self.calls.append((dataset, len(keys), tuple(columns)))
        instants = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        answers: list[Mapping[str, Any] | None] = []
        for key, at in zip(keys, instants, strict=True):
            versions = self.rows.get((dataset, key), ())
            answers.append(next((row for time, row in reversed(versions) if time <= at), None))
        defaults = CATALOG.absent[dataset]
        names = CATALOG.dataset(dataset).keys
        asked = [dict(zip(names, key, strict=True)) for key in keys]
        return (
            [
                [
                    {**given, **defaults}.get(name) if row is None else row[name]
                    for given, row in zip(asked, answers, strict=True)
                ]
                for name in columns
            ],
            [row is not None for row in answers],
        )


def graph(datasets: Sequence[Dataset] = DATASETS, featuresets: Sequence[Any] = FEATURESETS) -> Graph:
    return Graph(datasets=tuple(d.to_spec() for d in datasets), featuresets=tuple(f.to_spec() for f in featuresets))


def tagged(**tags: Sequence[str]) -> Graph:
    """Return the graph with tags on datasets, and on fields, whose names have two underscores in place of the dot."""

    def with_tags(spec: Any, name: str) -> Any:
        return replace(spec, metadata=replace(spec.metadata, tags=tuple(tags.get(name, ()))))

    found = graph()
    fields = {d.name: tuple(with_tags(f, f"{d.name}__{f.name}") for f in d.fields) for d in found.datasets}
    return replace(found, datasets=tuple(replace(with_tags(d, d.name), fields=fields[d.name]) for d in found.datasets))


def engine(reader: DictReader, definitions: Graph | None = None) -> QueryEngine:
    of = definitions or graph()
    return QueryEngine(Catalog("1", of), reader)


CATALOG = Catalog("1", graph())
