"""Parts of a server start in their order, and stop in the reverse of it whatever fails."""

from collections.abc import Callable
from functools import partial

import pytest

from caraway.apps.server.parts import ServerPart, ServerParts, thread_part
from caraway.process.recurring import Recurring

Log = list[str]


def _part(log: Log, name: str, failing: str = "") -> ServerPart:
    def step(word: str) -> None:
        log.append(f"{word} {name}")
        if word == failing:
            raise ValueError(f"{word} {name} fails")

    def act(word: str) -> Callable[[], None]:
        return partial(step, word)

    return ServerPart(name=name, start=act("start"), ask=act("ask"), stop=act("stop"))


def test_parts_start_in_order_and_stop_in_reverse_after_all_were_asked() -> None:
    log: Log = []
    parts = ServerParts([_part(log, name) for name in "abc"])
    parts.start()
    assert log == ["start a", "start b", "start c"]
    log.clear()
    parts.stop()
    assert log == ["ask c", "ask b", "ask a", "stop c", "stop b", "stop a"]


def test_a_part_that_fails_to_start_stops_those_before_it_in_reverse_order() -> None:
    log: Log = []
    parts = ServerParts([_part(log, "a"), _part(log, "b"), _part(log, "c", "start"), _part(log, "d")])
    with pytest.raises(ValueError, match="start c fails"):
        parts.start()
    assert log == ["start a", "start b", "start c", "ask b", "ask a", "stop b", "stop a"]
    log.clear()
    parts.stop()
    assert log == []


@pytest.mark.parametrize("failing", ["ask", "stop"])
def test_stopping_goes_on_past_a_part_that_fails(failing: str) -> None:
    log: Log = []
    parts = ServerParts([_part(log, "a"), _part(log, "b", failing), _part(log, "c")])
    parts.start()
    log.clear()
    parts.stop()
    assert log == ["ask c", "ask b", "ask a", "stop c", "stop b", "stop a"]


def test_a_thread_is_asked_before_it_is_waited_for() -> None:
    work = Recurring("work", lambda: None, 3600.0)
    part = thread_part("work", work, 5.0)
    part.start()
    part.ask()
    assert work.stopping.is_set()
    assert part.stop() is True
