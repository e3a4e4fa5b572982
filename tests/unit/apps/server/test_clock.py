"""Windows that close by the clock: heartbeats close them, and pass on only when what follows from that is there."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from caraway.apps.server.freshness.freshness import FreshnessWatch
from caraway.apps.server.freshness.heartbeats import LONG_AGO
from tests.unit.apps.server.test_freshness import PLAN, VISITS, Clock, World, settle, watch

CLOCKED = replace(PLAN, indexes=tuple(replace(index, by_clock=index.emits is not None) for index in PLAN.indexes))
(EMITTING,) = [index for index in CLOCKED.indexes if index.by_clock]
Asked = tuple[bytes, float, Mapping[int, int]]


def outcome(result: bool | Exception) -> "Future[bool]":
    made: Future[bool] = Future()
    if isinstance(result, Exception):
        made.set_exception(result)
    else:
        made.set_result(result)
    return made


def test_a_heartbeat_waits_until_windows_are_closed_and_their_rows_are_readable() -> None:
    world, asked = World(plan=CLOCKED), list[Asked]()
    pending: Future[bool] = Future()
    outcomes = [[outcome(False)], [outcome(True), outcome(OSError("no disk"))], [outcome(True), pending]]

    def advance(asset: bytes, at: float, goal: Mapping[int, int]) -> "list[Future[bool]]":
        asked.append((asset, at, goal))
        return outcomes[len(asked) - 1]

    world.advance_clock = advance
    world.now = 3.0
    world.accept(VISITS)
    world.begin()
    assert asked == [], "the index hasn't reached the mark"
    settle(world)
    reached = len(world.topics[EMITTING.topic])
    # It is tried again until it succeeds, with the time of the heartbeat and a position behind all that came before.
    assert asked == [(EMITTING.asset, 3.0, {0: reached})] * 3
    assert world.age("Pages") == 0.0
    assert world.done_at("Busy") == LONG_AGO
    assert world.waits_for("Busy") == "the index that sends the rows of Hourly"

    # The closing sends a row; the heartbeat is readable only when the row is.
    assert EMITTING.emits is not None
    world.topics[EMITTING.emits.name].append(world.now)
    pending.set_result(True)
    world.advance()
    assert world.done_at("Busy") == LONG_AGO
    settle(world)
    assert world.age("Busy") == 0.0
    assert world.done_at("Busy") == 3.0
    assert world.oldest_unread("Busy") is None
    assert len(asked) == 3


def test_an_index_that_has_moved_away_is_closed_by_no_former_outcome() -> None:
    world, asked = World(plan=CLOCKED), list[float]()
    former, later = Future[bool](), Future[bool]()

    def advance(_asset: bytes, at: float, _goal: Mapping[int, int]) -> "list[Future[bool]]":
        asked.append(at)
        return [later if asked[1:] else former]

    world.advance_clock = advance
    world.begin()
    settle(world)
    # Another server fills the index meanwhile, so what was asked of this one is forgotten.
    elsewhere = [status for status in world.statuses() if status.asset != EMITTING.asset.hex()]
    world.heartbeats.advance(lambda: world.now, elsewhere, [], whole=True)
    former.set_result(True)
    settle(world)
    assert asked == [0.0, 0.0]
    assert world.done_at("Busy") == LONG_AGO
    later.set_result(True)
    settle(world)
    assert world.done_at("Busy") == 0.0


def test_the_clock_time_is_the_wall_time_of_the_heartbeat(tmp_path: Path) -> None:
    world, clock, asked = World(plan=CLOCKED), Clock(50.0), list[tuple[bytes, int]]()
    made: FreshnessWatch = watch(world, tmp_path / "freshness.json", clock)

    def close(asset: bytes, time_us: int, _goal: Mapping[int, int]) -> "list[Future[bool]]":
        asked.append((asset, time_us))
        return [outcome(True)]

    made._advance = close
    world.advance_clock = made._advance_clock
    world.now = clock.now
    world.begin()
    clock.now += 7.0
    settle(world)
    assert asked == [(EMITTING.asset, 1_700_000_050_000_000)]
