"""Bounded webhooks: however rows come to several servers, their source ends neither early nor late."""

from dataclasses import dataclass, replace
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.positions import SourcePositions
from caraway.dataplane.sources.webhooks import LONGEST_S, RECEIVED, Receipts, WebhookReader, interval_s
from caraway.errors import UnavailableError
from tests.effort import examples
from tests.unit.dataplane.sources.test_sources import SOURCE, World, plan_of


@dataclass
class Notes:
    """The notes in Postgres, which all servers share."""

    world: World
    value: bytes = b""
    away: bool = False
    writes: int = 0

    def receive(self, source: str, item: str, value: bytes) -> bool:
        assert (source, item) == ("hives", RECEIVED)
        self._answer()
        self.value, self.writes = value, self.writes + 1
        return self.world.saved is not None and self.world.saved.closed

    def receipt(self) -> bytes:
        self._answer()
        return self.value

    def _answer(self) -> None:
        if self.away:
            raise UnavailableError("Postgres is away")


@dataclass(frozen=True)
class Rows:
    """Some seconds pass, then rows come to a server; meanwhile Postgres is away, or the worker's server is killed."""

    seconds: float
    server: int
    away: bool
    kill: bool


STEPS = st.builds(Rows, st.floats(0, 90), st.integers(0, 1), st.booleans(), st.integers(0, 5).map(lambda n: n == 0))


# The second rows come just before their server would note them, and the first ones were noted just before a look.
BETWEEN = [Rows(seconds, 0, away=False, kill=False) for seconds in (4.99, 4.0, 56.0)]


@pytest.mark.spec("connectors:12:10")
@example(steps=BETWEEN, idleness_s=60)
@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(STEPS, max_size=12), idleness_s=st.sampled_from([2, 60]))
def test_a_source_ends_when_no_rows_have_come_for_its_idleness(steps: list[Rows], idleness_s: int) -> None:
    source = replace(SOURCE, bounded=True, idleness_us=idleness_s * 1_000_000)
    plan = plan_of(source)
    world = World({})
    notes = Notes(world)
    target = Target(plan)

    def opened(*_: object) -> WebhookReader:
        return WebhookReader(source, notes.receipt, clock=lambda: world.now, sleep=world.sleep)

    world.opens = cast("type", opened)
    servers = [Receipts(cast("SourcePositions", notes), lambda _: "hives", clock=lambda: world.now) for _ in range(2)]
    worker = world.worker(plan=plan)
    last = world.now

    def run(seconds: float) -> None:
        """Run the worker for some seconds of its clock."""
        nonlocal worker
        until = world.now + seconds
        while world.now < until:
            before = world.now
            try:
                assert worker.step()
            except UnavailableError:
                world.now += 2.0
            if not worker.closed:
                # The end isn't late: after the last rows come one interval of notes, one of looks, and pauses.
                assert notes.away or before < quiet_since + idleness_s + 2 * interval_s(source) + 5.0
            world.now = max(world.now, before + 0.01)

    quiet_since = world.now
    for step in steps:
        notes.away = step.away
        run(step.seconds)
        notes.away = False
        if step.away or step.kill:
            quiet_since = world.now
        if step.kill:
            worker = world.worker(plan=plan)
            assert worker.step()
        was_closed = worker.closed
        is_closed = servers[step.server].is_closed(target)
        # Rows are left out if, and only if, the source has ended; and it hasn't ended early.
        assert is_closed == was_closed
        if not is_closed:
            last = quiet_since = world.now
        assert not was_closed or world.now >= last + idleness_s
    run(idleness_s + 2 * interval_s(source) + 6.0)
    assert worker.closed
    assert all(server.is_closed(target) for server in servers)


def test_notes_are_few_and_nobody_asks_for_sources_that_have_no_end() -> None:
    source = replace(SOURCE, bounded=True, idleness_us=3_600_000_000)
    notes = Notes(World({}))
    now = 0.0
    receipts = Receipts(cast("SourcePositions", notes), lambda _: "hives", clock=lambda: now)
    target, endless = Target(plan_of(source)), Target(plan_of(SOURCE))
    for _ in range(1000):
        assert not receipts.is_closed(target)
        assert not receipts.is_closed(endless)
        now += 0.01
    assert notes.writes == 10 / LONGEST_S


def test_rows_are_taken_while_postgres_is_away() -> None:
    source = replace(SOURCE, bounded=True, idleness_us=1_000_000)
    notes = Notes(World({}), away=True)
    receipts = Receipts(cast("SourcePositions", notes), lambda _: "hives")
    assert not receipts.is_closed(Target(plan_of(source)))
