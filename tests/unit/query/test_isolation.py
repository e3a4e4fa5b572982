"""Users' functions in processes of their own give what they give here, and hurt nobody else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from caraway.dtypes.types import INT
from caraway.errors import ExtractorError, UnknownEntityError
from caraway.query import DatasetLookups, FunctionPool, QueryEngine
from caraway.query.batch import Batch
from caraway.query.functions import compile_function
from caraway.query.model import PythonStep, TypedColumn
from tests.unit.query.garden import CATALOG, DictReader

pytestmark = pytest.mark.slow

SECONDS = 1.5
MEMORY_MB = 200
OUTPUTS = ["State.advice", "State.water", "State.species"]
DATA = {"Tap.pot": [1, 2]}
NOW_US = time.time_ns() // 1000
ROWS = {
    ("Pots", (1,)): [(NOW_US - 10**6, {"pot": 1, "species": "oak", "size": 12.5, "bought": NOW_US - 10**6})],
    ("Rules", ("oak",)): [(NOW_US - 10**6, {"species": "oak", "text": "daily", "water": 3, "since": NOW_US - 10**6})],
}


@pytest.fixture(scope="module")
def pool() -> Iterator[FunctionPool]:
    made = FunctionPool(2, SECONDS, MEMORY_MB)
    made.start()
    yield made
    made.stop()


def test_answers_are_those_of_this_process(pool: FunctionPool) -> None:
    here = QueryEngine(CATALOG, DictReader(ROWS))
    there = QueryEngine(CATALOG, DictReader(ROWS), pool.compile)
    expected = here.plan(["Tap.pot"], OUTPUTS).run(DATA)
    assert expected["State.advice"] == ["daily", "none"]
    for _ in range(3):
        assert there.plan(["Tap.pot"], OUTPUTS).run(DATA) == expected


FAULTY = ["broken", "nameless", "short", "wrong", "nulls", "forbidden", "number", "misnamed", "first"]


@pytest.mark.parametrize("feature", FAULTY)
def test_failures_are_told_alike(pool: FunctionPool, feature: str) -> None:
    told = []
    for compile_python in (compile_function, pool.compile):
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


def step(function: Any) -> PythonStep:
    return PythonStep(
        featureset="A",
        extractor=function.__name__,
        inputs=(TypedColumn(name="A.x", dtype=INT),),
        outputs=(("A.y", INT),),
        kept=("A.y",),
        datasets=(),
        pickled=_by_value(function),
    )


def _by_value(function: Any) -> bytes:
    """The processes don't have the tests."""
    function.__module__ = "__main__"
    pickled: bytes = cloudpickle.dumps(function)
    return pickled


def no_lookups(*_: object) -> DatasetLookups:
    return DatasetLookups(CATALOG, DictReader({}), past=False, allowed=())


def run(pool: FunctionPool, of: PythonStep, x: int) -> object:
    batch = Batch({"A.x": [x]}, 1, 0, past=False)
    pool.compile(of, no_lookups)(batch)
    return batch.columns["A.y"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (loop_if_odd, r"did not end within 1.5 s"),
        (exit_if_odd, r"ended its process \(exit code 3\)"),
        (take_much_if_odd, r"needs more than 200 MB of memory"),
    ],
)
def test_what_hangs_or_dies_hurts_its_own_request_only(pool: FunctionPool, function: Any, said: str) -> None:
    of = step(function)
    with ThreadPoolExecutor(2) as threads:
        bad = threads.submit(run, pool, of, 1)
        assert [threads.submit(run, pool, of, x).result() for x in (2, 4, 6)] == [[2], [4], [6]]
        with pytest.raises(ExtractorError, match=said):
            bad.result()
    # Both processes work, the new one too.
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda x: run(pool, of, x), (2, 4, 6, 8))) == [[2], [4], [6], [8]]


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

    pool = FunctionPool(1, 30.0, secrets=get)
    pool.start()
    try:
        assert run(pool, step(tell_secrets), 1) == [10]
        with pytest.raises(ExtractorError, match=r"raised ValueError: can't sign with '\*\*\*'$"):
            run(pool, step(tell_secrets), 2)
        with pytest.raises(ExtractorError, match="there is no secret 'none'"):
            run(pool, step(tell_secrets), 3)
    finally:
        pool.stop()


def take_little_beside_arrow(cls: Any, ts: Any, x: Any) -> Any:
    del cls, ts
    taken = pa.array([7])
    kept = bytearray(200 << 20)
    return x.rename("y") * 0 + len(kept) + len(taken)


def test_what_arrow_reserves_is_not_the_functions() -> None:
    pool = FunctionPool(1, 30.0, 1100)
    pool.start()
    try:
        assert run(pool, step(take_little_beside_arrow), 1) == [(200 << 20) + 1]
    finally:
        pool.stop()


ORPHANED = """
import os, signal, threading, time
from tests.unit.query.test_isolation import loop_if_odd, run, step
from caraway.query import FunctionPool

if __name__ == "__main__":
    pool = FunctionPool(1, 60.0)
    pool.start()
    run(pool, step(loop_if_odd), 2)
    threading.Thread(target=run, args=(pool, step(loop_if_odd), 1), daemon=True).start()
    time.sleep(0.5)  # until it hangs
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_hangs_ends_with_the_server(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(ORPHANED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # Whoever lives on holds the other end of its output.
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
