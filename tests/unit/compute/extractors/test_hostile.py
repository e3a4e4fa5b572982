"""Tests that the server runs nothing that a process of users' functions sends, and then starts a new process."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from caraway.compute.extractors import worker
from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.query.answers import holds
from caraway.compute.query.batch import Batch, LaterRun
from caraway.dtypes.types import INT, ListType, MapType, OptionalType, StructType
from caraway.errors import ExtractorError
from tests.unit.compute.extractors import hostile
from tests.unit.compute.extractors.hostile import ANSWERS, ENDLESS
from tests.unit.compute.extractors.test_pool import COMMIT, no_lookups, same, step


@pytest.fixture(scope="module")
def pool() -> Iterator[FunctionPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "TARGET", f"{hostile.__name__}:serve")
        made = FunctionPool(1, 20.0)
        made.start()
        yield made
        made.stop()


def compiled(pool: FunctionPool, kind: str) -> LaterRun:
    return pool.compiler(COMMIT)(replace(step(same), extractor=kind), no_lookups)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*ANSWERS, ENDLESS])
def test_nothing_but_columns_of_their_types_is_taken(pool: FunctionPool, kind: str) -> None:
    with pytest.raises(ExtractorError, match="ended its process"):
        compiled(pool, kind)(Batch({"A.x": [1]}, 1, 0, past=False))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pickle", ENDLESS])
def test_an_event_loop_takes_nothing_else_either(pool: FunctionPool, kind: str) -> None:
    # A loop reads from the channel in its own way, and then goes on as a thread does.
    with pytest.raises(ExtractorError, match="ended its process"):
        asyncio.run(compiled(pool, kind).later(Batch({"A.x": [1]}, 1, 0, past=False)))


def test_columns_are_checked_against_their_types() -> None:
    numbers = ListType(of=OptionalType(of=INT))
    assert holds(numbers)([[1, None], []])
    assert not holds(numbers)([[1, "a"]])
    assert not holds(numbers)([None])
    assert holds(OptionalType(of=numbers))([None])
    assert not holds(INT)([True])
    assert holds(MapType(of=INT))([{"a": 1}])
    assert not holds(MapType(of=INT))([{"a": 1.0}])
    struct = StructType("Pair", (("a", INT), ("b", OptionalType(of=INT))))
    assert holds(struct)([[1, None]])
    assert not holds(struct)([[None, 1]])
    assert not holds(struct)([[1]])
