"""The oracle: checks of rows one by one, as the specification has them, with conditions by pandas."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from caraway.compute.expectations.predicates import expectation_names, holds, is_skipped, predicate_of
from caraway.dtypes.values import is_null
from caraway.graph.expectations import Expectation, ExpectationSuite, arguments_of, columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The count of rows that a check let pass."""

    name: str
    successes: int
    failures: int
    skipped: int
    mostly: float

    @property
    def passed(self) -> bool:
        """True if enough of the checked rows are as expected, or if no row was checked."""
        evaluated = self.successes + self.failures
        return evaluated == 0 or self.successes / evaluated >= self.mostly


def check_rows(suite: ExpectationSuite, frame: pd.DataFrame) -> tuple[Outcome, ...]:
    """Return the outcome of each check, in order."""
    names = expectation_names(suite)
    return tuple(_check(name, item, frame) for name, item in zip(names, suite.expectations, strict=True))


def _check(name: str, expectation: Expectation, frame: pd.DataFrame) -> Outcome:
    arguments = arguments_of(expectation)
    columns = [frame[column].tolist() for column in columns_of(arguments)]
    predicate = predicate_of(expectation.name, arguments)
    successes = failures = 0
    for row, counts in zip(zip(*columns, strict=True), _condition(arguments.get("row_condition"), frame), strict=True):
        if not counts or is_skipped(expectation.name, row, arguments):
            continue
        if holds(predicate, row):
            successes += 1
        else:
            failures += 1
    return Outcome(
        name=name,
        successes=successes,
        failures=failures,
        skipped=len(frame) - successes - failures,
        mostly=1.0 if arguments.get("mostly") is None else float(arguments["mostly"]),
    )


def _condition(condition: Any, frame: pd.DataFrame) -> list[bool]:
    if condition is None:
        return [True] * len(frame)
    found = frame.reset_index(drop=True).eval(condition, engine="python")
    return [not is_null(value) and bool(value) for value in pd.Series(found, index=range(len(frame)))]
