"""Explanations over the random graphs of the parity tests: each read is the sum of its listed parts, to the bit."""

import random
from collections.abc import Sequence

import pytest

from caraway.engine_local.engine import LocalEngine
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.specs import DatasetSpec
from caraway.query.catalog import Catalog
from caraway.why.in_process import EngineHistories
from caraway.why.lookups import Asked, Listing, aggregation_of, explain_lookup
from caraway.why.model import MAX_LISTED
from caraway.why.parts import all_shown
from caraway.why.recomputing import listed_values
from tests.effort import examples
from tests.parity.graphs import case_of, oracle

pytestmark = pytest.mark.filterwarnings("ignore:aggregate", "ignore:select")

# The reads of a dataset: of its versions, at and beside their begins.
READS = 12


def asked_of(engine: LocalEngine, spec: DatasetSpec, columns: Sequence[str], rng: random.Random) -> list[Asked]:
    """Draw reads of a dataset, also of times before its rows."""
    name = spec.name
    versions = list(engine.table(name).versions)
    found = []
    for version in rng.sample(versions, min(READS, len(versions))):
        at_us = version.begin_us + rng.choice([-1, 0, 1, 1_000_000, 3_600_000_000])
        key = tuple(version.row[part] for part in spec.keys)
        values, there = engine.lookup(name, [key], at_us, columns)
        row = {column: values[place][0] for place, column in enumerate(columns)}
        found.append(Asked(name, key, at_us, row, there[0]))
    return found


@pytest.mark.parametrize("seed", range(1, 1 + examples(40)))
def test_the_parts_of_a_random_graph(seed: int) -> None:
    case, rng = case_of(seed), random.Random(seed)
    engine, catalog = oracle(case), Catalog("", case.graph)
    histories = EngineHistories(engine, catalog.datasets)
    for spec in case.datasets:
        if not spec.keys:
            continue
        columns = [field.name for field in spec.fields]
        for asked in asked_of(engine, spec, columns, rng):
            found = explain_lookup(catalog, histories, asked, listing=Listing(limit=MAX_LISTED), hidden=all_shown)
            told = {**asked.values, **found.computed}
            assert repr({name: told[name] for name in columns}) == repr(dict(asked.values)), found.lookup
            given = listed_values(found.lookup, catalog)
            assert repr({name: given[name] for name in columns}) == repr(dict(asked.values)), found.lookup
            if asked.found:
                assert found.computed.keys() >= _computed(spec.name, catalog, columns)


def _computed(dataset: str, catalog: Catalog, columns: Sequence[str]) -> set[str]:
    """Return the columns that must be computed from parts: all, or the aggregates and the time."""
    spec = catalog.dataset(dataset)
    operator = aggregation_of(spec)
    if operator is None:
        return set(columns)
    assert all(isinstance(aggregate.function, AggregateFunction) for aggregate in operator.aggregates)
    return {aggregate.into for aggregate in operator.aggregates} | {spec.timestamp}
