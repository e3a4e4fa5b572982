# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, list-item, type-arg"
import io
import sys
from typing import Any

import httpx2
import pandas as pd
import pytest
from rich.console import Console

from caraway.client import progress as progress_module
from caraway.client.progress import Bar, Lines, Silent, progress_for
from caraway.errors import InvalidInputError, NotServedError
from tests.unit.client.test_client import Pots, Server

SINCE = {"Pots.1": {"0": 7}}
LAG = {"kind": "index", "name": "ab12", "dataset": "Pots", "records": 1_200, "reason": "it is 1,200 records behind"}
LATE = {"served": False, "lagging": [LAG], "done": 1, "parts": 3, "since": SINCE}
SERVED = {"served": True, "lagging": [], "done": 3, "parts": 3, "since": SINCE}


def test_a_wait_asks_until_all_is_served_and_keeps_its_moment() -> None:
    server = Server(LATE, LATE, SERVED)
    result = server.client(branch="dev").wait(timeout=60)
    assert result.since == SINCE
    bodies = [server.body(number) for number in range(3)]
    # Rows accepted later aren't waited for: each request repeats the first position.
    assert [body["since"] for body in bodies] == [None, SINCE, SINCE]
    assert [body["seconds"] for body in bodies] == [0.5, 1.0, 2.0]
    assert all(body["commit"] for body in bodies)
    assert {request.headers["X-Caraway-Branch"] for request in server.requests} == {"dev"}


def test_a_wait_that_ends_too_early_names_what_lags_and_by_how_much() -> None:
    with pytest.raises(NotServedError, match=r"after 0 s.*\n  index Pots, 1,200 records behind: it is") as raised:
        Server(LATE).client().wait(timeout=0)
    assert isinstance(raised.value, TimeoutError)
    assert [lag.records for lag in raised.value.lagging] == [1_200]  # type: ignore[attr-defined]


def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    server = Server(httpx2.ConnectError("refused"), (503, {"err_msg": "a part is away"}), SERVED)
    server.client().wait(timeout=60)
    assert len(server.requests) == 3


def test_a_wait_takes_no_negative_time() -> None:
    with pytest.raises(InvalidInputError, match="not -1"):
        Server(SERVED).client().wait(timeout=-1)


def test_log_and_commit_wait_if_asked_to() -> None:
    server = Server({"accepted": 1, "rejected": 0}, SERVED)
    server.client().log("web", "pots", pd.DataFrame({"pot": [1]}), wait=True)
    assert [request.url.path for request in server.requests] == ["/api/v1/log", "/api/v1/wait"]
    assert server.body(1)["commit"] is False
    server = Server({"summary": ["ok\n"]}, SERVED)
    server.client().commit("m", [Pots], wait=True)
    assert server.body(1)["commit"] is True
    server = Server({"summary": ["ok\n"]})
    server.client().commit("m", [Pots], preview=True, wait=True)
    assert len(server.requests) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_in_terminals_or_if_it_is_wanted() -> None:
    assert type(progress_for("wait", wanted=None, stream=io.StringIO())) is Silent
    assert type(progress_for("wait", wanted=False, stream=Terminal())) is Silent
    assert type(progress_for("wait", wanted=True, stream=io.StringIO())) is Lines


def test_a_terminal_gets_a_bar_and_lines_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress_for("wait", wanted=None, stream=Terminal()), Bar)
    monkeypatch.setattr(progress_module, "find_spec", lambda _name: None)
    assert isinstance(progress_for("wait", wanted=None, stream=Terminal()), Lines)


def test_a_notebook_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    kernel: Any = type("IPython", (), {"get_ipython": staticmethod(ZMQInteractiveShell)})
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert isinstance(progress_for("wait", wanted=None, stream=io.StringIO()), Bar)
    assert type(progress_for("wait", wanted=False, stream=io.StringIO())) is Silent


def test_lines_come_now_and_then() -> None:
    out, now = io.StringIO(), [0.0]
    lines = Lines("wait", out, clock=lambda: now[0])
    for second in range(5):
        now[0] = float(second)
        lines.show(second, 5, "index Pots")
    assert out.getvalue() == "wait: 2 of 5 after 2 s, index Pots\nwait: 4 of 5 after 4 s, index Pots\n"


def test_a_bar_shows_names_as_they_are() -> None:
    out = io.StringIO()
    with Bar("wait", Console(file=out, force_terminal=True, width=120)) as bar:
        bar.show(1, 3, "index [red]Pots[/red]")
    assert "1/3" in out.getvalue()
    assert "index [red]Pots[/red]" in out.getvalue()
