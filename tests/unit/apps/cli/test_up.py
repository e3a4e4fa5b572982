import errno
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from caraway.apps.cli import up as up_module
from caraway.apps.cli.output import out
from caraway.apps.cli.up import up
from caraway.process.settings.settings import Settings


class _Stack:
    url = "http://127.0.0.1:8100"

    def __init__(self, settings: Settings) -> None:
        self.calls: list[str] = []
        stacks.append(self)

    def start(self, on_progress: object) -> None:
        self.calls.append("start")

    def report_to(self, on_progress: Callable[..., None] | None) -> None:
        # The terminal is closed as soon as the stack is ready.
        if on_progress is not None:
            os.kill(os.getpid(), signal.SIGHUP)

    def stop(self) -> None:
        self.calls.append("stop")


stacks: list[_Stack] = []


# Rich raises `SystemExit` if the reader of a pipe has ended.
@pytest.mark.parametrize("error", [OSError(errno.EIO, "the terminal is gone"), SystemExit(1)])
def test_a_stack_is_stopped_in_order_when_its_terminal_is_closed(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        if stacks:
            raise error

    stacks.clear()
    monkeypatch.setattr(up_module, "Stack", _Stack)
    monkeypatch.setattr(out, "print", fail)
    up()
    assert stacks[0].calls == ["start", "stop"]
