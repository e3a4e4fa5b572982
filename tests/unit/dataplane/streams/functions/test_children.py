"""Tests that all other rows get their answers, whatever a user's function does to its process."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context

import pandas as pd
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.streams.functions import calls, children
from caraway.dataplane.streams.functions.calls import CallBatch, ExhaustedError, UserCall
from caraway.dataplane.streams.functions.children import TARGET, FunctionChild, Halving, Limits, UselessError
from caraway.dtypes.types import INT
from caraway.errors import InvalidInputError
from caraway.graph.capture.shipping import python_function
from caraway.graph.operators import AssignFunction, Input
from caraway.graph.schemas import Schema
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.requests import EndedError

LIMITS = Limits(seconds=60.0, memory_mb=64)


Numbers = Callable[[pd.DataFrame], object]
TYPE = pa.struct([("made", pa.int64()), ("message", pa.string()), ("traceback", pa.string())])


def call_of(function: Numbers) -> UserCall:
    """Return the call of a function that makes a column of a column of numbers."""
    schema = Schema(keys={}, values={"number": INT}, timestamp="at")
    step = AssignFunction(of=Input(dataset=""), column="made", dtype=INT, function=python_function("test", function))
    return UserCall(step, schema, (("made", INT),))


def columns_of(*numbers: int) -> tuple[pa.Array, pa.Array]:
    return pa.array(numbers, pa.int64()), pa.array([0] * len(numbers), pa.int64())


def _request(function: Numbers, number: int) -> CallBatch:
    return CallBatch(call_of(function).packed(), TYPE, pa.array([True]), columns_of(number), has_secrets=False)


@contextmanager
def child(memory_mb: int = 64, target: str = TARGET) -> Iterator[Callable[..., object]]:
    made = FunctionChild(memory_mb, Confinement(), target)

    def ask(function: Numbers, number: int = 1, seconds: float = 20.0) -> object:
        return made.call(_request(function, number), seconds).to_pylist()[0]["made"]

    ask.child = made  # type: ignore[attr-defined] # to look at
    yield ask
    made.end()


def _pid(frame: pd.DataFrame) -> "pd.Series[int]":
    return frame["number"] * 0 + os.getpid()


def _loop(frame: pd.DataFrame) -> None:
    while True:
        pass


def test_a_child_answers_again_and_again() -> None:
    with child() as ask:
        assert ask.child.fresh  # type: ignore[attr-defined]
        first = ask(_pid)
        # The process of the first call is used again.
        assert ask(_pid, 2) == first
        assert first != os.getpid()
        assert ask(lambda frame: frame["number"] + 1, 6) == 7


def test_what_loops_is_ended_in_time_and_the_next_request_is_answered() -> None:
    with child() as ask:
        pid = ask(_pid)
        with pytest.raises(EndedError, match=r"did not end within 0\.1 s"):
            ask(_loop, 1, 0.1)
        assert ask.child.fresh  # type: ignore[attr-defined]
        assert not psutil.pid_exists(pid)  # type: ignore[arg-type]
        assert ask(_pid) != pid


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda _: os._exit(7), "exit code 7"),
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda _: bytearray(1 << 30), "more than 64 MB of memory"),
    ],
    ids=["exit", "crash", "memory"],
)
def test_what_ends_the_process_is_told(work: Numbers, reason: str) -> None:
    with child() as ask, pytest.raises(EndedError, match=reason):
        ask(work)


def test_arrow_reserves_no_memory_of_the_functions() -> None:
    with child() as ask:
        assert ask(lambda frame: frame["number"] * 0 + len(pa.default_memory_pool().backend_name)) == len("system")


def test_a_function_that_cannot_be_loaded_leaves_the_process_alone() -> None:
    with child() as ask:
        pid = ask(_pid)
        broken = replace(_request(_pid, 1), packed=b"not a call")
        with pytest.raises(RuntimeError, match="UnpicklingError"):
            ask.child.call(broken, 20)  # type: ignore[attr-defined]
        assert ask(_pid) == pid
        assert not ask.child.fresh  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["pickle", "arrow", "length", "type", "offsets", "compressed", "dictionaries"])
def test_an_answer_that_is_not_what_was_asked_for_ends_the_process(kind: str) -> None:
    with (
        child(target=f"tests.unit.dataplane.streams.functions.hostile:{kind}") as ask,
        pytest.raises(EndedError, match="ended its process"),
    ):
        ask(_pid)


def test_a_child_ends_with_its_worker() -> None:
    context = get_context("fork")
    ours, theirs = context.Pipe()

    def worker() -> None:
        with child() as ask:
            theirs.send(ask(_pid))
            signal.pause()

    process = context.Process(target=worker)
    process.start()
    inner = psutil.Process(ours.recv())
    process.kill()
    process.join()
    assert psutil.wait_procs([inner], timeout=20)[1] == []


@given(rows=st.lists(st.booleans(), min_size=1, max_size=40))
def test_halving_finds_exactly_the_rows_that_give_no_answer(rows: list[bool]) -> None:
    shares: list[float] = []

    def ask(low: int, high: int, seconds: float) -> list[str]:
        shares.append(seconds)
        if not all(rows[low:high]):
            raise EndedError("no")
        return ["yes"] * (high - low)

    halving = Halving(ask=ask, fresh=lambda: True, fallback=lambda reason: [reason], limits=Limits(seconds=60))
    found = [answer for part in halving.answers(0, len(rows)) for answer in part]
    assert found == ["yes" if good else "no" for good in rows]
    assert min(shares) >= 6


def test_a_row_is_to_blame_only_if_it_fails_in_a_fresh_process() -> None:
    fresh = [False, True]

    def ask(low: int, high: int, seconds: float) -> str:
        if not fresh.pop(0):
            raise EndedError("left over")
        return f"{low} {high} {seconds:g}"

    halving = Halving(ask=ask, fresh=lambda: fresh[0], fallback=str, limits=Limits(seconds=60))
    assert halving.answers(0, 1) == ["0 1 60"]


def test_a_function_that_always_fails_is_given_up() -> None:
    def ask(low: int, high: int, seconds: float) -> str:
        raise EndedError(f"failed after {low} {high} {seconds}")

    halving = Halving(ask=ask, fresh=lambda: True, fallback=str, limits=Limits(seconds=60))
    with pytest.raises(UselessError, match="that happened 101 times in one batch"):
        halving.answers(0, 10_000)


def _exits(frame: pd.DataFrame) -> "pd.Series[int]":
    if (frame["number"] == 5).any():
        os._exit(3)
    return frame["number"] + 1


def _devours(frame: pd.DataFrame) -> "pd.Series[int]":
    held = []
    while (frame["number"] == 5).any():
        held.append(bytearray(1 << 24))
    return frame["number"] + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_exits, "ended its process (exit code 3)"),
        (_devours, "needs more than 64 MB of memory"),
    ],
    ids=["exits", "devours"],
)
def test_the_row_that_is_to_blame_has_no_value_and_all_others_have(function: Numbers, reason: str) -> None:
    # Spark's worker runs a function like this.
    wanted = pa.array([True] * 9)
    found = children.run_apart(
        call_of(function).packed(), TYPE, wanted, columns_of(*range(9)), LIMITS, job="a"
    ).to_pylist()
    assert [row["made"] for row in found] == [None if number == 5 else number + 1 for number in range(9)]
    assert [bool(row["message"]) for row in found] == [number == 5 for number in range(9)]
    assert f"assign: column made: its function {function.__name__} {reason}" in str(found[5]["message"])


def _takes_over(frame: pd.DataFrame) -> "pd.Series[int]":
    # From now on, the process answers each call with the answer for this one.
    from caraway.dataplane.streams.functions import process  # noqa: PLC0415 (in its process)

    made = frame["number"] * 0 + 999
    answer = pa.array([{"made": 999}], TYPE)
    vars(process)["run"] = lambda *_: answer
    return made


@pytest.mark.slow
def test_a_function_reaches_no_function_of_another_job() -> None:
    def made(function: Numbers, number: int, job: str) -> object:
        columns = columns_of(number)
        found = children.run_apart(call_of(function).packed(), TYPE, pa.array([True]), columns, LIMITS, job=job)
        return found.to_pylist()[0]["made"]

    assert made(_takes_over, 1, "dev") == 999
    assert made(_exits, 7, "main") == 8
    # The attack itself works, on its own job.
    assert made(_exits, 7, "dev") == 999
    pid = made(_pid, 1, "main")
    for number in range(4):
        assert psutil.pid_exists(pid)  # type: ignore[arg-type]
        made(_pid, 1, f"job {number}")
    assert not psutil.pid_exists(pid)  # type: ignore[arg-type]
    children._end_children()


def test_exhausted_memory_is_no_rows_fault_yet() -> None:
    def call(columns: object, rows: int) -> dict[str, list[object]]:
        raise InvalidInputError("raised MemoryError") from MemoryError()

    with pytest.raises(ExhaustedError):
        calls.results(call, {"number": [1, 2]}, 2)
