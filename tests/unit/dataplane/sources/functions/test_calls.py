"""Functions of preproc and where run in a process of their own, which loses nothing but the rows at which they fail."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import psutil
import pytest

from caraway.compute.rows.calls import call_here, refuse_functions
from caraway.dataplane.sources.functions import calls as source_calls
from caraway.dataplane.sources.functions.calls import MAX_ENDED, MAX_IDLE, FunctionCalls, SeparateCalls
from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.capture.shipping import python_function
from caraway.graph.functions import PythonFunction
from caraway.lib import secrets
from caraway.process.confinement.policy import Confinement


def secret(name: str) -> str:
    if name != "salt":
        raise UnknownEntityError(f"there is no secret {name}")
    return "pepper"


@pytest.fixture(scope="module")
def calls() -> Iterator[FunctionCalls]:
    made = FunctionCalls(20.0, 512, confinement=Confinement(mode="available"), secrets=secret)
    yield made
    made.stop()


def shipped(function: Callable[[pd.DataFrame], Any]) -> PythonFunction:
    return python_function("test", function)


FRAME = pd.DataFrame({"n": [1, 2, 3], "text": ["a", None, "c"], "nested": [{"x": 1}, [1, 2], None]})


def raises_for_two(frame: pd.DataFrame) -> "pd.Series[Any]":
    if (frame["n"] == 2).any():
        raise ValueError("two")
    return frame["n"] * 10


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (b"\x1e", "UnpicklingError: invalid load key"),
        (b"cmodule_of_the_author\nprice\n.", "ModuleNotFoundError: No module named 'module_of_the_author'"),
    ],
    ids=["damaged", "module"],
)
def test_a_function_that_cannot_be_loaded_makes_the_source_wait_with_the_reason(
    calls: FunctionCalls, capfd: pytest.CaptureFixture[str], pickled: bytes, reason: str
) -> None:
    with pytest.raises(UnavailableError, match=f"^price can't be loaded here: {reason}"):
        calls(PythonFunction(name="price", source_code="", pickled=pickled), FRAME)
    assert "Traceback" not in capfd.readouterr().err
    assert calls(shipped(raises_for_two), FRAME)[0] == [10, 30], "the process goes on"


@pytest.mark.parametrize(
    "function",
    [
        lambda frame: frame["n"] * 1.5,
        lambda frame: frame["text"],
        lambda frame: frame["nested"],
        lambda frame: pd.to_datetime(frame["n"], unit="s", utc=True),
        lambda frame: frame["n"].astype("Int64").where(frame["n"] > 1),
        raises_for_two,
        lambda frame: "no series",
    ],
)
def test_the_outcome_is_that_of_a_call_here(calls: FunctionCalls, function: Callable[[pd.DataFrame], Any]) -> None:
    assert calls(shipped(function), FRAME) == call_here(shipped(function), FRAME)


def test_secrets_are_asked_for_and_stay_out_of_errors(calls: FunctionCalls) -> None:
    def salted(frame: pd.DataFrame) -> "pd.Series[Any]":
        return frame["n"].map(lambda n: f"{n}{secrets.get('salt')}")

    def revealing(frame: pd.DataFrame) -> "pd.Series[Any]":
        raise ValueError(f"{secrets.get('salt')} {len(frame)}")

    assert calls(shipped(salted), FRAME) == (["1pepper", "2pepper", "3pepper"], {})
    _, errors = calls(shipped(revealing), FRAME)
    assert "pepper" not in str(errors)
    assert "***" in errors[0]


def test_a_function_that_ends_its_process_loses_one_row(calls: FunctionCalls) -> None:
    def ends(frame: pd.DataFrame) -> "pd.Series[Any]":
        if (frame["n"] == 2).any():
            os._exit(3)
        return frame["n"]

    values, errors = calls(shipped(ends), FRAME)
    assert values == [1, 3]
    assert "ended its process" in errors[1]


def test_a_function_that_ends_its_process_for_each_row_stops_the_source(calls: FunctionCalls) -> None:
    frame = pd.DataFrame({"n": range(MAX_ENDED + 5)})
    with pytest.raises(UnavailableError, match=f"for {MAX_ENDED + 1} rows"):
        calls(shipped(lambda _: os._exit(1)), frame)


def test_a_function_that_hangs_loses_its_row() -> None:
    def hangs(frame: pd.DataFrame) -> "pd.Series[Any]":
        if (frame["n"] == 2).any():
            time.sleep(1_000)
        return frame["n"]

    calls = FunctionCalls(2.0, 512, confinement=Confinement(mode="available"), secrets=secret)
    try:
        values, errors = calls(shipped(hangs), FRAME)
    finally:
        calls.stop()
    assert values == [1, 3]
    assert "did not end within 2 s" in errors[1]


def test_a_function_has_no_network(calls: FunctionCalls) -> None:
    def connects(frame: pd.DataFrame) -> "pd.Series[Any]":
        socket.create_connection(("127.0.0.1", 9), timeout=1)
        return frame["n"]

    _, errors = calls(shipped(connects), FRAME)
    assert "Refused" not in errors[0]


def takes_over(frame: pd.DataFrame) -> "pd.Series[Any]":
    # From now on, the process answers each call with values of its own.
    from caraway.dataplane.sources.functions import process  # noqa: PLC0415 (in its process)

    vars(process)["call_here"] = lambda _, frame: ([999] * len(frame), {})
    return frame["n"]


def process_number(position: int) -> PythonFunction:
    return shipped(lambda frame: frame["n"] * 0 + os.getpid() + position - position)


@pytest.fixture
def separate() -> Iterator[SeparateCalls]:
    made = SeparateCalls(lambda: FunctionCalls(20.0, 512, confinement=Confinement(), secrets=secret))
    yield made
    made.stop()


def test_a_function_reaches_no_other_function_of_a_webhook(separate: SeparateCalls) -> None:
    assert separate(shipped(takes_over), FRAME) == ([1, 2, 3], {})
    assert separate(shipped(lambda frame: frame["n"]), FRAME) == ([1, 2, 3], {})
    # The attack itself works, on the same function.
    assert separate(shipped(takes_over), FRAME) == ([999, 999, 999], {})


def test_processes_of_webhooks_are_few_and_end_when_they_are_idle(
    separate: SeparateCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = [separate(process_number(number), FRAME)[0][0] for number in range(MAX_IDLE + 2)]
    assert [psutil.pid_exists(int(str(pid))) for pid in pids] == [False] * 2 + [True] * MAX_IDLE
    separate.end_idle()
    assert psutil.pid_exists(int(str(pids[-1])))
    monkeypatch.setattr(source_calls, "IDLE_S", 0.0)
    separate.end_idle()
    assert not any(psutil.pid_exists(int(str(pid))) for pid in pids)


def test_without_processes_all_rows_are_refused() -> None:
    values, errors = refuse_functions(shipped(lambda frame: frame["n"]), FRAME)
    assert values == []
    assert list(errors) == [0, 1, 2]
