"""Tests of lookups in an index whose shards other servers own: they are sent together, and have the same answers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.compute.query.model import Instants
from tests.unit.compute.query import garden
from tests.unit.compute.query.garden import DictReader

ROWS: dict[tuple[str, tuple[Any, ...]], Sequence[tuple[int, Mapping[str, Any]]]] = {
    ("Pots", (1,)): [(0, {"pot": 1, "species": "oak", "size": 3.0, "bought": 0})],
    ("Moisture", (1,)): [(0, {"pot": 1, "mean": 0.5, "count": 2, "at": 0})],
    ("Moisture", (2,)): [(0, {"pot": 2, "mean": 1.5, "count": 4, "at": 0})],
}
OUTPUTS = ["State.species", "State.size", "State.mean", "State.score"]
DATA = {"Tap.pot": [1, 2, 3]}


class SlowReader(DictReader):
    """A reader that answers only when as many reads wait as a request has."""

    asks_others = True

    def __init__(self, together: int) -> None:
        super().__init__(ROWS)
        self.together = together
        self.waiting = 0
        self.all_wait = asyncio.Event()

    async def read_async(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        self.waiting += 1
        if self.waiting == self.together:
            self.all_wait.set()
        await self.all_wait.wait()
        return self.read(dataset, keys, at_us, columns)


def test_lookups_that_do_not_wait_for_each_other_are_asked_for_together() -> None:
    reader = SlowReader(together=2)
    plan = QueryEngine(Catalog("1", garden.graph()), reader).plan(["Tap.pot"], OUTPUTS)
    assert plan.asks_others
    assert not plan.runs_user_code
    batch = asyncio.run(asyncio.wait_for(plan.evaluate_async(DATA, 10), 60))
    here = QueryEngine(Catalog("1", garden.graph()), DictReader(ROWS)).plan(["Tap.pot"], OUTPUTS)
    assert not here.asks_others
    assert plan.answer(batch) == here.run(DATA, 10)
    # A caller without an event loop waits for one read after the other.
    assert plan.run(DATA, 10) == here.run(DATA, 10)


def test_a_request_without_rows_asks_nobody() -> None:
    reader = SlowReader(together=1)
    engine = QueryEngine(Catalog("1", garden.graph()), reader)
    plan = engine.plan(["State.pot"], ["State.mean"])
    assert engine.asks_others
    assert plan.answer(asyncio.run(plan.evaluate_async({"State.pot": []}, 10))) == {"State.mean": []}
    assert reader.calls == []
