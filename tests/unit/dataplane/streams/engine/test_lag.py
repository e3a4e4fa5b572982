"""The lag of jobs, compared with a plain count of the records that came at each look."""

from collections.abc import Iterable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.streams.engine.lag import Lag, Observer, Tide, messages_between
from caraway.dataplane.streams.spark.live import RealTimeRows
from caraway.graph.plan.model import TopicKind
from tests.effort import examples
from tests.unit.dataplane.streams.plans import topic

amounts = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12)


def test_messages_are_counted_from_the_beginning_of_a_partition_that_is_new() -> None:
    start = {"a": {0: 5}}
    end = {"a": {0: 9, 1: 10}, "b": {0: 4}}
    assert messages_between(start, end, {"a": {0: 0, 1: 3}, "b": {0: 1}}) == 4 + 7 + 3


@given(amounts, st.integers(0, 130))
@settings(max_examples=examples(200))
def test_lag_counts_unprocessed_records_from_before_the_last_look_but_two(
    amounts: list[tuple[int, int]], done: int
) -> None:
    tide = Tide(100)
    came: list[int] = []
    a = b = 0
    for at, (more_a, more_b) in enumerate(amounts):
        a, b = a + more_a, b + more_b
        came += [at] * (more_a + more_b)
        tide.rise(at, {"a": {0: a}, "b": {1: b}, "other": {0: 1000}})
    now = len(amounts) - 1
    waiting = [at for at in came[done:] if at <= max(now - 2, 0)]
    lag = tide.lag(["a", "b"], done)
    assert lag is not None
    assert lag.records == len(waiting)
    # A record came at the earliest after the look before the one that saw it.
    assert lag.seconds == (now - max(0, waiting[0] - 1) if waiting else 0)


def test_nothing_is_known_before_the_first_look_at_all_topics() -> None:
    tide = Tide(10)
    assert tide.lag(["a"], 0) is None
    tide.rise(1.0, {"b": {0: 3}})
    assert tide.lag(["a"], 0) is None
    tide.rise(2.0, {"a": {0: 3}})
    assert tide.lag(["a"], 0) == Lag(records=3, seconds=0.0)


def test_the_observer_reads_the_ends_of_watched_topics() -> None:
    ends = {"a": {0: 7, 1: 3}, "b": {0: 1}}
    asked: list[set[str]] = []

    def ends_of(names: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
        asked.append({*names})
        return {name: ends[name] for name in names}

    observer = Observer(ends_of, dict, lambda _: {}, clock=lambda: 5.0)
    observer.watch([topic("a", TopicKind.VERSIONS)])
    observer.look()
    observer.watch([topic("b", TopicKind.VERSIONS)])
    observer.look()
    assert asked == [{"a"}, {"a", "b"}]
    assert observer.lag(["a"], 6) == Lag(records=4, seconds=0.0)


def test_the_observer_looks_at_the_blocks_of_event_topics_that_have_grown() -> None:
    ends = {"events": {0: 10}, "versions": {0: 10}}
    asked: list[list[str]] = []

    def sizes_of(names: Iterable[str]) -> Mapping[str, float]:
        asked.append([*names])
        return dict.fromkeys(asked[-1], 20.0)

    observer = Observer(lambda _: ends, dict, sizes_of, clock=lambda: 5.0)
    observer.watch([topic("events"), topic("versions", TopicKind.VERSIONS)])
    observer.look()
    observer.look()
    ends = {"events": {0: 11}, "versions": {0: 11}}
    observer.look()
    assert asked == [["events"], [], ["events"]]
    assert observer.lag(["events"], 4) == Lag(records=6 * 20, seconds=0.0)
    assert observer.lag(["versions"], 4) == Lag(records=6, seconds=0.0)
    assert observer.lag(["events", "versions"], 14) == Lag(records=6 * 20, seconds=0.0)


def test_what_a_query_had_read_a_look_ago_counts_as_long_as_it_is_of_the_same_batch() -> None:
    reading = RealTimeRows(batch=3, rows=4)
    observer = Observer(lambda _: {}, lambda: {"run": reading}, lambda _: {}, clock=lambda: 5.0)
    observer.look()
    assert observer.rows("run", 3) == 0
    reading = RealTimeRows(batch=3, rows=9)
    observer.look()
    assert (observer.rows("run", 3), observer.rows("run", 4), observer.rows("another", 3)) == (4, 0, 0)
    # After a checkpoint the rows of the old batch are in the offsets.
    reading = RealTimeRows(batch=4, rows=1)
    observer.look()
    assert (observer.rows("run", 3), observer.rows("run", 4)) == (9, 0)
    observer.look()
    assert (observer.rows("run", 3), observer.rows("run", 4)) == (0, 1)
