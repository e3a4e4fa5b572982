"""Tests that users' functions in processes of their own return the same values as here, and harm no other request."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pyarrow as pa
import pytest

from caraway.compute.extractors import worker, workers
from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.query.batch import Batch, LaterRun, Traceable
from caraway.compute.query.datasets import DatasetLookups
from caraway.compute.query.executor import CompiledPlan, QueryEngine, stages
from caraway.compute.query.explain import explain
from caraway.compute.query.functions import compile_function
from caraway.compute.query.model import InputColumn, PythonStep, QueryPlan
from caraway.dtypes.types import INT, STRING, DataType
from caraway.errors import ExtractorError, UnavailableError, UnknownEntityError
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.values import unpacked
from tests.timeouts import scaled
from tests.unit.compute.query.garden import CATALOG, DictReader
from tests.unit.compute.query.steps import by_value, step_of
from tests.unit.process.children.waiting import eventually

pytestmark = pytest.mark.slow

SECONDS = 1.5
MEMORY_MB = 200
OUTPUTS = ["State.advice", "State.water", "State.species"]
DATA = {"Tap.pot": [1, 2]}
COMMIT = "commit"
NOW_US = time.time_ns() // 1000
ROWS = {
    ("Pots", (1,)): [(NOW_US - 10**6, {"pot": 1, "species": "oak", "size": 12.5, "bought": NOW_US - 10**6})],
    ("Rules", ("oak",)): [(NOW_US - 10**6, {"species": "oak", "text": "daily", "water": 3, "since": NOW_US - 10**6})],
}


@contextmanager
def started(*limits: Any, **more: Any) -> Iterator[FunctionPool]:
    made = FunctionPool(*limits, **more)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def pool() -> Iterator[FunctionPool]:
    with started(2, scaled(SECONDS), MEMORY_MB) as made:
        yield made


def test_answers_are_those_of_this_process(pool: FunctionPool) -> None:
    here = QueryEngine(CATALOG, DictReader(ROWS))
    there = QueryEngine(CATALOG, DictReader(ROWS), pool.compiler(COMMIT))
    expected = here.plan(["Tap.pot"], OUTPUTS).run(DATA)
    assert expected["State.advice"] == ["daily", "none"]
    for _ in range(3):
        assert there.plan(["Tap.pot"], OUTPUTS).run(DATA) == expected


FAULTY = ["broken", "nameless", "short", "wrong", "nulls", "forbidden", "number", "misnamed", "first"]


@pytest.mark.parametrize("feature", FAULTY)
def test_failures_are_told_alike(pool: FunctionPool, feature: str) -> None:
    told = []
    for compile_python in (compile_function, pool.compiler(COMMIT)):
        engine = QueryEngine(CATALOG, DictReader(ROWS), compile_python)
        with pytest.raises(ExtractorError) as error:
            engine.plan(["Tap.pot"], [f"Faulty.{feature}"]).run(DATA)
        told.append(str(error.value))
    assert told[0] == told[1]


def loop_if_odd(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    while x[0] % 2:
        pass
    return x.rename("y")


def exit_if_odd(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    if x[0] % 2:
        os._exit(3)
    return x.rename("y")


def take_much_if_odd(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    held = bytearray((300 if x[0] % 2 else 50) << 20)
    return x.rename("y") + len(held[:0])


def step(function: Any, dtype: DataType = INT) -> PythonStep:
    return step_of(by_value(function), {"A.x": dtype}, {"A.y": dtype}, name=function.__name__)


def no_lookups(*_: object) -> DatasetLookups:
    return DatasetLookups(CATALOG, DictReader({}), past=False, allowed=())


def run(pool: FunctionPool, of: PythonStep, x: int, commit: str = COMMIT) -> object:
    return value(pool.compiler(commit)(of, no_lookups), x)


def value(compiled: LaterRun, x: object) -> object:
    batch = Batch({"A.x": [x]}, 1, 0, past=False)
    compiled(batch)
    return batch.columns["A.y"]


async def run_later(pool: FunctionPool, of: PythonStep, x: int, commit: str = COMMIT) -> object:
    return await later(pool.compiler(commit)(of, no_lookups), x)


async def later(compiled: LaterRun, x: int) -> object:
    batch = Batch({"A.x": [x]}, 1, 0, past=False)
    await compiled.later(batch)
    return batch.columns["A.y"]


FATAL = pytest.mark.parametrize(
    ("function", "said"),
    [
        (loop_if_odd, r"did not end within {seconds:g} s"),
        (exit_if_odd, r"ended its process \(exit code 3\)"),
        (take_much_if_odd, r"needs more than 200 MB of memory"),
    ],
)


@FATAL
def test_what_hangs_or_dies_hurts_its_own_request_only(pool: FunctionPool, function: Any, said: str) -> None:
    of = step(function)
    with ThreadPoolExecutor(2) as threads:
        bad = threads.submit(run, pool, of, 1)
        assert [threads.submit(run, pool, of, x).result() for x in (2, 4, 6)] == [[2], [4], [6]]
        with pytest.raises(ExtractorError, match=said.format(seconds=pool.seconds)):
            bad.result()
    # Both processes work, also the one that replaced another.
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda x: run(pool, of, x), (2, 4, 6, 8))) == [[2], [4], [6], [8]]


@FATAL
def test_an_event_loop_goes_on_meanwhile(pool: FunctionPool, function: Any, said: str) -> None:
    of = step(function)

    async def ask() -> None:
        bad = asyncio.create_task(run_later(pool, of, 1))
        # There are more calls than processes, so some calls wait for a process.
        assert await asyncio.gather(*(run_later(pool, of, x) for x in (2, 4, 6))) == [[2], [4], [6]]
        with pytest.raises(ExtractorError, match=said.format(seconds=pool.seconds)):
            await bad
        assert await asyncio.gather(*(run_later(pool, of, x) for x in (2, 4, 6, 8))) == [[2], [4], [6], [8]]

    asyncio.run(ask())
    # Calls without an event loop use the same processes.
    assert run(pool, of, 2) == [2]


@pytest.mark.parametrize(("rows", "by_the_loop"), [(1, True), (20_000, False)])
def test_a_large_answer_is_parsed_beside_the_event_loop(
    pool: FunctionPool, rows: int, by_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the keys of a large answer takes Python's time, and the loop goes on meanwhile."""
    threads: list[threading.Thread] = []

    def noted(content: bytes) -> object:
        threads.append(threading.current_thread())
        return unpacked(content)

    monkeypatch.setattr(worker, "unpacked", noted)
    batch = Batch({"A.x": [2**40] * rows}, rows, 0, past=False)
    asyncio.run(pool.compiler(COMMIT)(step(same), no_lookups).later(batch))
    assert batch.columns["A.y"] == [2**40] * rows
    # An earlier answer may be that of a process that was asked for the function's expressions, in a thread.
    assert (threads[-1] is threading.main_thread()) is by_the_loop


def test_who_gives_up_costs_a_process_and_nobody_an_answer(pool: FunctionPool) -> None:
    of = step(loop_if_odd)

    async def ask() -> None:
        for _ in range(3):
            hanging = [asyncio.create_task(run_later(pool, of, 1)) for _ in range(2)]
            waiting = asyncio.create_task(run_later(pool, of, 4))
            # This lets the calls begin before they are cancelled.
            await asyncio.sleep(0)
            for task in (*hanging, waiting):
                task.cancel()
            await asyncio.gather(*hanging, waiting, return_exceptions=True)
            assert await run_later(pool, of, 2) == [2]

    asyncio.run(ask())
    assert run(pool, of, 2) == [2]


def test_all_are_busy_is_told(pool: FunctionPool) -> None:
    of = step(loop_if_odd)

    async def ask() -> list[object]:
        hanging = [asyncio.create_task(run_later(pool, of, 1)) for _ in range(6)]
        return await asyncio.gather(*hanging, return_exceptions=True)

    kinds = {type(error) for error in asyncio.run(ask())}
    # The last calls never got a process, so they are refused as unavailable.
    assert kinds == {ExtractorError, UnavailableError}
    assert run(pool, of, 2) == [2]


def test_large_columns_and_lookups_travel_on_a_loop_too(pool: FunctionPool) -> None:
    words = ["x" * 1000] * 5000
    of = step(same, STRING)
    batch = Batch({"A.x": list(words)}, len(words), 0, past=False)
    asyncio.run(pool.compiler(COMMIT)(of, no_lookups).later(batch))
    assert batch.columns["A.y"] == words
    expected = QueryEngine(CATALOG, DictReader(ROWS)).plan(["Tap.pot"], OUTPUTS)
    there = QueryEngine(CATALOG, DictReader(ROWS), pool.compiler(COMMIT)).plan(["Tap.pot"], OUTPUTS)
    assert there.answer(asyncio.run(there.evaluate_async(DATA))) == expected.run(DATA)


def same(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    return x.rename("y")


def meet(mine: str, other: str, cls: Any, *series: Any) -> Any:
    import pathlib  # noqa: PLC0415 (in its process)

    del cls
    pathlib.Path(mine).touch()
    while not pathlib.Path(other).exists():
        pass
    return series[1].rename(pathlib.Path(mine).name)


def test_independent_functions_run_side_by_side(tmp_path: Path) -> None:
    # The functions see each other by files, to which confined functions have no rights.
    with started(2, 60.0, confinement=Confinement(mode="off")) as pool:
        meet.__module__ = "__main__"
        steps = tuple(
            replace(
                step(same),
                outputs=((f"A.{mine}", INT),),
                kept=(f"A.{mine}",),
                pickled=cloudpickle.dumps(partial(meet, str(tmp_path / mine), str(tmp_path / other))),
            )
            for mine, other in (("a", "b"), ("b", "a"))
        )
        plan = QueryPlan(inputs=(InputColumn(name="A.x", dtype=INT),), steps=steps, outputs=())
        runs = tuple(pool.compiler(COMMIT)(step, no_lookups) for step in steps)
        batch = Batch({"A.x": [7]}, 1, 0, past=False)
        # If the steps ran one after the other, the first would wait for the second for ever.
        asyncio.run(CompiledPlan(plan, runs, stages(plan, runs), (), (), (), runs_user_code=True).compute_async(batch))
        assert batch.columns == {"A.x": [7], "A.a": [7], "A.b": [7]}


def tell_secrets(cls: Any, ts: Any, x: Any) -> Any:
    from caraway.lib import secrets  # noqa: PLC0415 (in its process)

    del cls, ts
    value = secrets.get({1: "key", 2: "key", 3: "none"}[int(x[0])])
    if x[0] == 2:
        raise ValueError(f"can't sign with {value!r}")
    return x.rename("y") + len(value)


def test_functions_get_secrets_and_tell_them_to_nobody() -> None:
    def get(name: str) -> str:
        if name != "key":
            raise UnknownEntityError(f"there is no secret {name!r}")
        return "pass-word"

    with started(1, 30.0, secrets=get) as pool:
        assert run(pool, step(tell_secrets), 1) == [10]
        with pytest.raises(ExtractorError, match=r"raised ValueError: can't sign with '\*\*\*' \(test_pool"):
            run(pool, step(tell_secrets), 2)
        with pytest.raises(ExtractorError, match="there is no secret 'none'"):
            run(pool, step(tell_secrets), 3)


def take_little_beside_arrow(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    taken = pa.array([7])
    kept = bytearray(200 << 20)
    return x.rename("y") * 0 + len(kept) + len(taken)


def test_what_arrow_reserves_is_not_the_functions() -> None:
    with started(1, 30.0, 1100) as pool:
        assert run(pool, step(take_little_beside_arrow), 1) == [(200 << 20) + 1]


ORPHANED = """
import os, signal, threading, time
import psutil
from tests.unit.compute.extractors.test_pool import loop_if_odd, run, step
from caraway.compute.extractors import worker, workers
from caraway.compute.extractors.pool import FunctionPool

def used() -> float:
    return max(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))

if __name__ == "__main__":
    pool = FunctionPool(1, 60.0)
    pool.start()
    run(pool, step(loop_if_odd), 2)
    before = used()
    threading.Thread(target=run, args=(pool, step(loop_if_odd), 1), daemon=True).start()
    # A function that loops is the only one that takes so much of the processor.
    while used() < before + 0.1:
        time.sleep(0.01)
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended keeps its number until somebody asks for its status."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_hangs_ends_with_the_server(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(ORPHANED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # If the fork server outlived the server, it would keep the pipe of the output open, and `run` would time out.
    command, limit = [sys.executable, str(script)], scaled(60)
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=limit)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) > 1
    eventually(lambda: not any(lives(pid) for pid in pids))


def double_of_small(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    return (x * 2).rename("y")


def hide_and_seek(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    while True:
        try:
            return x.clip(0, 9).rename("y")
        except:  # noqa: E722, S112 (the worst that a user may write)
            continue


def test_a_simple_function_needs_no_process_after_its_first_call(pool: FunctionPool) -> None:
    compiled = pool.compiler(COMMIT)(step(double_of_small), no_lookups)
    assert isinstance(compiled, Traceable)

    assert compiled.expressions == ()
    assert value(compiled, 2) == [4]
    eventually(lambda: compiled.expressions != (), limit=30)
    plan = QueryPlan(inputs=(InputColumn(name="A.x", dtype=INT),), steps=(step(double_of_small),), outputs=())
    told = explain(CompiledPlan(plan, (compiled,), (), (), (), (), runs_user_code=True)).steps[0].details
    assert told == ("computed without its function:", 'A.y = (col("A.x") * 2)')
    busy = [pool.compiler(COMMIT)(step(loop_if_odd), no_lookups) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        hanging = [threads.submit(looping, Batch({"A.x": [1]}, 1, 0, past=False)) for looping in busy]
        # Both processes are busy, and the traced function doesn't wait for one.
        begun = time.monotonic()
        assert value(compiled, 21) == [42]
        assert asyncio.run(later(compiled, 21)) == [42]
        assert time.monotonic() - begun < SECONDS / 2
        assert [type(call.exception()) for call in hanging] == [ExtractorError] * 2
    with pytest.raises(ExtractorError, match="is declared int, but row 0 is null"):
        value(compiled, None)


def test_who_hides_from_being_traced_costs_a_process_once(pool: FunctionPool) -> None:
    compiled = pool.compiler(COMMIT)(step(hide_and_seek), no_lookups)
    assert isinstance(compiled, Traceable)
    for attempt in range(4):
        assert value(compiled, attempt * 5) == [min(9, attempt * 5)]
        wait(pool._tracing.copy(), 30)
    assert compiled.expressions == ()


class Deadly:
    """Ends the process that loads it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)


def import_nothing_here(x: int) -> int:
    import no_such_module  # type: ignore[import-not-found]  # noqa: PLC0415

    return int(no_such_module.double(x))


def test_functions_are_checked_one_by_one_in_a_process_of_their_own(pool: FunctionPool) -> None:
    functions = [by_value(import_nothing_here), cloudpickle.dumps(Deadly()), cloudpickle.dumps(len)]
    assert pool.lacking(functions) == [
        "No module named 'no_such_module'",
        "it ended its process (exit code 3) when it was loaded",
        "",
    ]
    assert pool.lacking([]) == []


def take_over(cls: Any, ts: Any, x: Any) -> Any:
    """Have every later call of the process return another value."""
    from caraway.compute.extractors import process  # noqa: PLC0415
    from caraway.process.confinement.values import packed  # noqa: PLC0415 (in its process)

    del cls, ts
    process._answer = lambda *_, **__: packed(["done", [[999]]])
    return x.rename("y")


def process_number(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    return x.rename("y") * 0 + os.getpid()


@pytest.fixture
def single() -> Iterator[FunctionPool]:
    with started(1, 30.0) as made:
        yield made


def test_a_function_reaches_no_function_of_another_commit(single: FunctionPool) -> None:
    assert run(single, step(take_over), 1, "dev") == [1]
    assert run(single, step(same), 7, "main") == [7]
    assert asyncio.run(run_later(single, step(same), 8, "main")) == [8]
    # The attack itself works: it harms its own commit, which can do whatever it likes with its own functions.
    assert run(single, step(same), 7, "dev") == [999]


def test_each_commit_keeps_its_process_and_loses_it_when_it_is_no_longer_served(single: FunctionPool) -> None:
    pids = {commit: run(single, step(process_number), 1, commit) for commit in ("a", "b", "c")}
    assert len({str(pid) for pid in pids.values()}) == 3
    assert {commit: run(single, step(process_number), 1, commit) for commit in pids} == pids
    single.end_unused({"a", "c"})
    assert not psutil.pid_exists(pids["b"][0])  # type: ignore[index]
    assert run(single, step(process_number), 1, "a") == pids["a"]
    assert run(single, step(process_number), 1, "c") == pids["c"]


def test_a_process_that_was_idle_for_long_is_ended(single: FunctionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(single, step(process_number), 1)
    single.end_unused({COMMIT})
    assert run(single, step(process_number), 1) == first
    monkeypatch.setattr(workers, "IDLE_S", 0.0)
    single.end_unused({COMMIT})
    assert run(single, step(process_number), 1) != first


def test_many_commits_hold_few_processes(single: FunctionPool) -> None:
    pids = [run(single, step(process_number), 1, f"commit {number}")[0] for number in range(11)]  # type: ignore[index]
    # The eight that were used last are kept.
    eventually(lambda: [psutil.pid_exists(pid) for pid in pids] == [False] * 3 + [True] * 8, limit=30)
