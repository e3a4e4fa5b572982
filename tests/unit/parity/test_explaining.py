"""The comparison of explanations with what is served: it accepts true ones, and sees values that parts don't give."""

import random
from collections.abc import Sequence

import pytest

from caraway.compute.query.catalog import Catalog
from caraway.compute.query.model import Instants, QueryReader, Rows
from caraway.compute.reference.engine import LocalEngine
from caraway.compute.why.in_process import EngineHistories
from caraway.graph.specs import DatasetSpec
from tests.effort import examples
from tests.parity.comparing import compared_columns
from tests.parity.explaining import Served, featured
from tests.parity.graphs import case_of, oracle

pytestmark = pytest.mark.filterwarnings("ignore:aggregate", "ignore:select")

READS = 12


class EngineReader(QueryReader):
    """Serves what an in-process engine has, but nulls in one column."""

    def __init__(self, engine: LocalEngine, wrong: str | None = None) -> None:
        self._engine, self._wrong = engine, wrong

    def read(self, source: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /) -> Rows:
        values, found = self._engine.lookup(source, keys, at_us, columns)
        shown = [
            [None if there else value for value, there in zip(column, found, strict=True)]
            if name == self._wrong
            else list(column)
            for name, column in zip(columns, values, strict=True)
        ]
        return shown, list(found)


def values_and_time(spec: DatasetSpec) -> list[str]:
    return [field.name for field in spec.fields if not field.key]


@pytest.mark.parametrize("seed", range(1, 1 + examples(40)))
def test_explanations_give_what_is_served(seed: int) -> None:
    case, rng = case_of(seed), random.Random(seed)
    engine, catalog = oracle(case), Catalog("", featured(case.datasets))
    histories = EngineHistories(engine, catalog.datasets)
    for spec in case.datasets:
        versions = list(engine.table(spec.name).versions) if spec.keys else []
        for version in rng.sample(versions, min(READS, len(versions))):
            at_us = version.begin_us + rng.choice([-1, 0, 1, 1_000_000, 3_600_000_000])
            served = Served(catalog, EngineReader(engine), histories, on_topics=False, columns=values_and_time)
            asked = tuple(version.row[part] for part in spec.keys), at_us
            assert served.unexplained(spec, asked, rng) == []


def test_a_value_that_the_parts_do_not_give_is_seen() -> None:
    seen = 0
    for seed in range(1, 8):
        case, rng = case_of(seed), random.Random(seed)
        engine, catalog = oracle(case), Catalog("", featured(case.datasets))
        histories = EngineHistories(engine, catalog.datasets)
        for spec in case.derived:
            columns = compared_columns(spec)
            versions = list(engine.table(spec.name).versions) if spec.keys and columns else []
            for version in versions[:1]:
                asked = tuple(version.row[part] for part in spec.keys), version.begin_us
                values, found = engine.lookup(spec.name, [asked[0]], asked[1], columns)
                reader = EngineReader(engine, columns[0])
                differing = Served(catalog, reader, histories, on_topics=False).unexplained(spec, asked, rng)
                assert bool(differing) == (found[0] and values[0][0] is not None)
                seen += bool(differing)
    assert seen
