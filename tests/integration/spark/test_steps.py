"""Tests that jobs, in the mode that the planner chooses, have the output of the in-process engine, for each step."""

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

from caraway.dataplane.topics.codec import MAX_RECORD_BYTES
from caraway.dataplane.topics.keys import MAX_KEY_BYTES
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.expr.nodes import Binary, BinaryOp, Literal, Node, Ref, Strptime, When
from caraway.graph.capture.shipping import python_function
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import (
    Assign,
    AssignedColumn,
    AssignFunction,
    DropNull,
    Explode,
    Filter,
    FilterFunction,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Select,
    Transform,
    Union,
)
from caraway.graph.plan.model import JobMode
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import CLICKS, SOURCES, Case
from tests.integration.spark.runs import Run, run_all
from tests.tiers import selected

# The jobs of all cases are started at once, by the first test.
pytestmark = pytest.mark.timeout(900)
ARRIVALS = model.traffic(seed=5, count=300)
CLICK, USER = Input(dataset="Clicks"), Input(dataset="Users")


def _binary(op: BinaryOp, left: str | int, right: str | int) -> Binary:
    return Binary(op=op, left=_node(left), right=_node(right))


def _node(part: str | int) -> Node:
    return Ref(name=part) if isinstance(part, str) else Literal(value=part, dtype=INT)


def _assign(of: Operator, column: str, dtype: DataType, expr: Node) -> Operator:
    return Assign(of=of, columns=(AssignedColumn(name=column, dtype=dtype, expr=expr),))


def _halved(of: Operator, by: str) -> Operator:
    return _assign(of, "half", INT, _binary(BinaryOp.FLOOR_DIV, 12, by))


def _joined(
    of: Operator, *fields: str, how: JoinKind = JoinKind.INNER, low_us: int | None = None, high_us: int = 0
) -> Operator:
    return Join(
        left=of,
        right="Users",
        how=how,
        left_on=("user",),
        right_on=("user",),
        within_low_us=low_us,
        within_high_us=high_us,
        fields=fields,
    )


def _function(call: Callable[[pd.DataFrame], Any]) -> PythonFunction:
    return python_function("test", call)


def _noted(frame: pd.DataFrame) -> pd.DataFrame:
    """Fail at any row whose note is b, and return a wrong type for rows whose number is 5."""
    if (frame["note"] == "b").any():
        raise KeyError("no such note")
    frame["length"] = frame["note"].str.len().fillna(0)
    if (frame["number"] == 5).any():
        frame["length"] = "many"
    return frame.drop(columns=["note", "price"])


def _level(frame: pd.DataFrame) -> "pd.Series[Any]":
    assert (frame["level"] != 3).all()
    return frame["level"] * 2 + frame["labels"].map(len)


LENGTHS = (
    *((c, t) for c, t in ((f.name, f.dtype) for f in CLICKS.fields) if c not in {"note", "price"}),
    ("length", INT),
)
POSITIVE = Filter(of=CLICK, predicate=_binary(BinaryOp.GT, "number", 0))
NEGATED = _assign(CLICK, "number", INT, _binary(BinaryOp.SUB, 0, "number"))
SLIM = Select(of=CLICK, columns=("user", "number"))
BY_LEVEL = _binary(BinaryOp.FLOOR_DIV, 12, "level")
PARSED = Strptime(operand=Ref(name="note"), format="%Y-%m-%d")

# The rows of one number have a longer key, or a longer row, than indexes and topics take.
IS_THREE = _binary(BinaryOp.EQ, "number", 3)
SHORT = Literal(value="short", dtype=STRING)
THREES = [arrival for arrival in ARRIVALS["Clicks"] if arrival.row["number"] == 3]
OTHERS = Filter(of=SLIM, predicate=_binary(BinaryOp.NE, "number", 3))
# The messages about these rows, by the name of the case.
TOO_LONG = {
    "LongKeys": f"at most {MAX_KEY_BYTES:,} can be indexed",
    "LongRows": f"at most {MAX_RECORD_BYTES:,} fit",
}


def _with_text(of: Operator, text: Node = SHORT) -> Operator:
    return _assign(of, "text", STRING, text)


def _long_at_three(size: int) -> Node:
    return When(branches=((IS_THREE, Literal(value="x" * size, dtype=STRING)),), otherwise=SHORT)


def _by_text(of: Operator) -> Operator:
    return Latest(of=of, keys=("user", "text"))


REAL_TIME = [
    Case(
        "LongKeys",
        _by_text(_with_text(SLIM, _long_at_three(MAX_KEY_BYTES))),
        same=_by_text(_with_text(OTHERS)),
    ),
    Case("LongRows", _with_text(SLIM, _long_at_three(MAX_RECORD_BYTES)), same=_with_text(OTHERS)),
    Case("Dropnull", DropNull(of=CLICK, columns=("price", "note"))),
    Case("DropnullKeyed", DropNull(of=USER, columns=("town",))),
    Case("Explode", Explode(of=CLICK, columns=("tags", "marks"))),
    Case("ExplodeTwice", Explode(of=Explode(of=POSITIVE, columns=("tags",)), columns=("marks",))),
    # The list comes from the right side, so its length changes when that changes.
    Case("ExplodeRevised", Explode(of=_joined(SLIM, "labels"), columns=("labels",))),
    Case(
        "ExplodeUneven",
        Explode(of=_joined(CLICK, "labels"), columns=("tags", "labels")),
        same=Explode(
            of=FilterFunction(
                of=_joined(CLICK, "labels"),
                function=_function(lambda frame: frame["tags"].map(len) == frame["labels"].map(len)),
            ),
            columns=("tags", "labels"),
        ),
    ),
    Case("Unite", Union(left=POSITIVE, right=NEGATED)),
    Case("UniteSame", Union(left=CLICK, right=CLICK)),
    Case("UniteUnions", Union(left=Union(left=SLIM, right=SLIM), right=Union(left=SLIM, right=SLIM))),
    Case(
        "UniteJoins",
        Union(left=_joined(SLIM, "level"), right=_joined(Select(of=NEGATED, columns=("user", "number")), "level")),
    ),
    # Versions count that begin a little earlier or later than the event.
    Case("JoinWithin", _joined(CLICK, "town", low_us=20, high_us=5)),
    Case("JoinLater", _joined(SLIM, "town", how=JoinKind.LEFT, high_us=30)),
    Case("JoinUnited", _joined(Union(left=POSITIVE, right=NEGATED), "town", "labels")),
    # Among rows of equal times the right one comes last.
    Case("LatestOfUnion", Latest(of=Union(left=POSITIVE, right=NEGATED), keys=("user",))),
    Case("Divide", _halved(CLICK, "number"), lambda row: row["number"] == 0),
    Case("DivideAndJoin", _joined(_halved(CLICK, "number"), "town"), lambda row: row["number"] == 0),
    Case("DivideKeyed", _halved(USER, "level"), lambda row: row["level"] == 0, of="Users"),
    Case(
        "UniteDivided",
        Union(left=_halved(POSITIVE, "number"), right=_halved(CLICK, "number")),
        same=Union(
            left=_halved(POSITIVE, "number"),
            right=_halved(Filter(of=CLICK, predicate=_binary(BinaryOp.NE, "number", 0)), "number"),
        ),
    ),
    # The right side decides at which rows this step fails.
    Case(
        "DivideJoined",
        _halved(_joined(CLICK, "level"), "level"),
        same=_halved(Filter(of=_joined(CLICK, "level"), predicate=_binary(BinaryOp.NE, "level", 0)), "level"),
    ),
    Case(
        "Parse", _assign(CLICK, "day", optional(DATETIME), PARSED), lambda row: row["note"] not in {None, "2024-02-29"}
    ),
]

MICRO_BATCH = [
    Case("KeepByFunction", FilterFunction(of=CLICK, function=_function(lambda frame: frame["price"] > 0))),
    Case("KeepKeyed", FilterFunction(of=USER, function=_function(lambda frame: frame["level"] > 0))),
    Case(
        "AssignByFunction",
        AssignFunction(
            of=CLICK, column="sum", dtype=optional(FLOAT), function=_function(lambda f: f["price"] + f["number"])
        ),
    ),
    Case(
        "TransformFails",
        Transform(of=CLICK, function=_function(_noted), columns=LENGTHS),
        lambda row: row["note"] == "b" or row["number"] == 5,
    ),
    Case(
        "AssignFailsKeyed",
        AssignFunction(of=USER, column="level", dtype=INT, function=_function(_level)),
        lambda row: row["level"] == 3,
        of="Users",
    ),
    Case(
        "FunctionAfterJoin",
        Explode(
            of=FilterFunction(of=_joined(SLIM, "labels"), function=_function(lambda f: f["labels"].map(len) != 1)),
            columns=("labels",),
        ),
    ),
    Case(
        "FunctionInUnion",
        Union(left=SLIM, right=FilterFunction(of=SLIM, function=_function(lambda frame: frame["number"] % 2 == 0))),
    ),
]
CASES = {case.name: case for case in [*REAL_TIME, *MICRO_BATCH]}
# These cases always run. The others are variants of them, and each costs a job with three seconds of processor time.
OFTEN = {
    "ExplodeRevised",
    "JoinUnited",
    "Divide",
    *TOO_LONG,
    "JoinWithin",
    "TransformFails",
    "AssignFailsKeyed",
    "FunctionAfterJoin",
}
# The cases whose dead letters are compared in full.
LETTERS = {"Divide", "TransformFails", *TOO_LONG}
VARIANT = pytest.mark.full(reason="a variant of the steps that each run tests; a job more beside theirs")


def _params(cases: Iterable[Case]) -> list[ParameterSet]:
    return [pytest.param(case, id=case.name, marks=() if case.name in OFTEN else VARIANT) for case in cases]


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Run the jobs that are tested while rows come in, late ones among them, in small lots."""
    folder = tmp_path_factory.mktemp("checkpoints")
    # The cases of `LETTERS` run even if they aren't selected.
    cases = [case for case in CASES.values() if case in selected(request, "case") or case.name in LETTERS]
    letters = {case.name: len(_poisoned(case)) for case in cases if case.poison} | dict.fromkeys(TOO_LONG, len(THREES))
    return run_all(cases, ARRIVALS, broker=broker, spark=spark, folder=folder, suffix="steps", letters=letters)


def _poisoned(case: Case) -> list[dict[str, Any]]:
    """Return the rows that must become dead letters."""
    timestamp = SOURCES[case.of].timestamp
    return [{**a.row, timestamp: a.time_us} for a in ARRIVALS[case.of] if case.is_poison(case.of, a)]


@pytest.mark.parametrize("case", _params(CASES.values()))
def test_a_job_gives_what_the_in_process_engine_gives(case: Case, run: Run) -> None:
    run.check(case, least=21)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_only_what_needs_python_runs_in_micro_batches(case: Case) -> None:
    _, job = model.plan(case, "steps")
    mode = JobMode.MICRO_BATCH if case in MICRO_BATCH else JobMode.REAL_TIME
    assert job.mode is mode
    assert ("Python function" in job.mode_reason) == (mode is JobMode.MICRO_BATCH)


@pytest.mark.parametrize("case", _params(c for c in CASES.values() if c.poison))
def test_each_row_that_fails_is_a_dead_letter(case: Case, run: Run) -> None:
    letters = run.letters[case.name]
    assert sorted((letter["row"] for letter in letters), key=repr) == sorted(_poisoned(case), key=repr)
    assert {(letter["dataset"], letter["pipeline"]) for letter in letters} == {(case.name, "made")}


@pytest.mark.parametrize(("name", "said"), TOO_LONG.items())
def test_a_row_that_is_too_long_is_a_dead_letter(name: str, said: str, run: Run) -> None:
    letters = run.letters[name]
    assert len(letters) == len(THREES) > 0
    for letter in letters:
        assert letter["operator"] == "output"
        (reason,) = letter["reason"]
        assert said in reason["message"]


def test_a_letter_tells_what_failed(run: Run) -> None:
    divided = run.letters["Divide"][0]
    assert divided["operator"] == "assign"
    (reason,) = divided["reason"]
    assert reason["field"] == "half"
    assert "declared int" in reason["message"]
    raised = [letter for letter in run.letters["TransformFails"] if letter["row"]["note"] == "b"]
    (reason,) = raised[0]["reason"]
    assert "its function _noted raised KeyError: 'no such note'" in reason["message"]
    assert reason["traceback"].endswith("KeyError: 'no such note'")
    assert "raise KeyError" in reason["traceback"] or "_noted" in reason["traceback"]
