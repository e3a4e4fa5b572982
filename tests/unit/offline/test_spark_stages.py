"""The stages of plans on Spark, the division of rows, and rows that fail amid others."""

import polars as pl
import pytest

from caraway.compute.query.model import AliasStep, KeyPart, LookedUp, LookupStep, PythonStep
from caraway.dtypes.types import FLOAT, INT, STRING, optional
from caraway.errors import ExtractorError, InvalidInputError
from caraway.graph.plan.model import Column
from caraway.graph.specs import IndexSpec
from caraway.offline.columns import SeriesBatch
from caraway.offline.executions import chosen
from caraway.offline.queries.model import Execution
from caraway.offline.spark.pieces import ROWS, decoded, divided, divisions_of, encoded
from caraway.offline.spark.rows import ERROR, NUMBER, TIME, advanced
from caraway.offline.spark.stages import Stage, stages_of
from tests.unit.compute.query.steps import step_of

INDEX = IndexSpec(online=True, offline=True)


def lookup(dataset: str, key: str, *columns: str, each: bool = False, dtype: object = INT) -> LookupStep:
    part = KeyPart(column=key, dtype=dtype, key="k", key_dtype=INT)  # type: ignore[arg-type]
    features = tuple(LookedUp(column=name, field=name, dtype=optional(INT), default=None) for name in columns)
    return LookupStep(dataset=dataset, indexed=INDEX, keys=(part,), features=features, absent={}, each=each)


def alias(source: str, output: str) -> AliasStep:
    return AliasStep(input=source, input_dtype=INT, output=output, dtype=INT, default=0)


def function(source: str, output: str, *datasets: str) -> PythonStep:
    return step_of(b"", {source: INT}, {output: INT}, *datasets)


def staged(
    steps: tuple[object, ...], *divided_datasets: str
) -> list[tuple[list[str], tuple[str, ...], tuple[int, ...]]]:
    found: tuple[Stage, ...] = stages_of(steps, divided_datasets, lambda step: step.keys)  # type: ignore[arg-type]
    return [([part.column for part in stage.keys], stage.datasets, stage.steps) for stage in found]


def test_a_stage_has_all_lookups_by_one_key_and_what_needs_no_shuffle() -> None:
    steps = (
        lookup("Users", "u", "friend"),
        lookup("Small", "u", "s"),
        lookup("Spending", "u", "n"),
        alias("friend", "f"),
        lookup("Users", "f", "city"),
        lookup("Small", "f", "t"),
        function("city", "y"),
    )
    assert staged(steps, "Users", "Spending") == [
        ([], (), (1,)),
        (["u"], ("Users", "Spending"), (0, 2, 3, 5)),
        (["f"], ("Users",), (4, 6)),
    ]
    assert staged(steps) == [([], (), (0, 1, 2, 3, 4, 5, 6))]


def test_a_dataset_that_is_read_by_other_keys_than_a_row_s_is_not_divided() -> None:
    steps = (lookup("Users", "u", "a"), function("u", "y", "Users"))
    assert staged(steps, "Users") == [([], (), (0, 1))]
    assert staged((lookup("Users", "us", "a", each=True),), "Users") == [([], (), (0,))]
    assert staged((lookup("Users", "name", "a", dtype=STRING),), "Users") == [([], (), (0,))]


def test_equal_keys_are_in_one_division_and_no_row_is_lost() -> None:
    keys = (Column(name="user", dtype=INT), Column(name="city", dtype=STRING))
    columns = [pl.Series("user", [1, 2, 1, None, 1] * 50), pl.Series("city", ["a", "b", "a", "c", "x"] * 50)]
    divisions = divisions_of(keys, columns, 7)
    assert set(divisions.tolist()) <= set(range(7))
    for row in range(5):
        assert len(set(divisions[row::5].tolist())) == 1
    frame = pl.DataFrame(columns).with_row_index("row")
    pieces = list(divided(frame, divisions, ROWS))
    rows = [row for piece in pieces for row in piece.frame["row"].to_list()]
    assert sorted(rows) == list(range(250))
    for piece in pieces:
        assert decoded(encoded(piece.frame)).equals(piece.frame)
        assert all(divisions[row] == piece.division for row in piece.frame["row"])


@pytest.mark.parametrize("error", [InvalidInputError, ExtractorError])
def test_a_row_that_fails_is_alone_at_last(error: type[Exception]) -> None:
    frame = pl.DataFrame(
        {NUMBER: range(100, 120), TIME: [0] * 20, ERROR: [None] * 19 + ["earlier"], "x": [float(n) for n in range(20)]},
        schema_overrides={ERROR: pl.String},
    )
    calls = 0

    def run(batch: SeriesBatch) -> None:
        nonlocal calls
        calls += 1
        values = batch.columns["x"]
        if 7.0 in values or 13.0 in values:
            raise error(f"x, row {values.index(7.0) if 7.0 in values else values.index(13.0)}, is row 0")
        batch.columns["y"] = [value * 2 for value in values]  # type: ignore[operator]

    found = advanced(frame, run, ["y", "x"], {"x": FLOAT, "y": FLOAT}).sort(NUMBER)
    assert found[NUMBER].to_list() == list(range(100, 120))
    assert found["y"].to_list() == [None if n in {7, 13, 19} else 2.0 * n for n in range(20)]
    assert {row: told for row, told in enumerate(found[ERROR]) if told is not None} == {
        7: "x, row 107, is row 0",
        13: "x, row 113, is row 0",
        19: "earlier",
    }
    assert calls < 25


@pytest.mark.parametrize(
    ("wanted", "needed_mb", "found"),
    [
        (Execution.AUTO, 100, Execution.PROCESS),
        (Execution.AUTO, 101, Execution.SPARK),
        (Execution.SPARK, 1, Execution.SPARK),
        (Execution.PROCESS, 100, Execution.PROCESS),
    ],
)
def test_a_query_that_doesn_t_fit_runs_on_spark(wanted: Execution, needed_mb: int, found: Execution) -> None:
    assert chosen(wanted, needed_mb, 100) is found


def test_a_process_without_enough_memory_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInputError, match=r'needs? about 5,000 MiB.*offline\.memory_mb.*execution="spark"'):
        chosen(Execution.PROCESS, 5_000, 4_096)
