"""The seconds of the steps of a query."""

from caraway.offline.stopwatch import Stopwatch


def test_the_time_of_an_inner_step_is_its_own() -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    with watch.step("lookups"):
        now[0] += 1.0
        with watch.step("read"):
            now[0] += 4.0
        now[0] += 2.0
    with watch.step("write"):
        now[0] += 0.5
    with watch.step("read"):
        now[0] += 0.25
    assert watch.taken() == {"lookups": 3.0, "read": 4.25, "write": 0.5}
    assert watch.taken() == {}
