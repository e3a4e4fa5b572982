"""Tests that the server runs nothing that a process of users' functions sends, and then starts a new process."""

import asyncio

import pytest

from caraway.dtypes.types import INT, ListType, MapType, OptionalType, StructType
from caraway.errors import ExtractorError
from caraway.functions.extractors import worker
from caraway.functions.extractors.pool import FunctionPool
from caraway.query.answers import holds
from caraway.query.batch import Batch
from tests.unit.functions.extractors import hostile
from tests.unit.functions.extractors.test_pool import no_lookups, same, step

KINDS = [name for name in vars(hostile) if callable(getattr(hostile, name)) and name[0].islower()]
KINDS = [name for name in KINDS if name != "packed"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_columns_of_their_types_is_taken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TARGET", f"tests.unit.functions.extractors.hostile:{kind}")
    pool = FunctionPool(1, 20.0)
    pool.start()
    compiled = pool.compile(step(same), no_lookups)
    try:
        with pytest.raises(ExtractorError, match="ended its process"):
            compiled(Batch({"A.x": [1]}, 1, 0, past=False))
        with pytest.raises(ExtractorError, match="ended its process"):
            asyncio.run(compiled.later(Batch({"A.x": [1]}, 1, 0, past=False)))
    finally:
        pool.stop()


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
