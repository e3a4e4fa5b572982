"""Rows of corpora of mistakes: the mistake, its exception, and the facts that the message names."""

from collections.abc import Callable
from typing import Any

import pytest

# The arguments of a test whose cases are rows.
ROW = ("call", "error", "facts")


def mistakes_of(table: str) -> Callable[..., Any]:
    """Return a function that makes a row of a corpus; `table` is the file of most rows of the specification in it."""

    def mistake(call: Callable[..., Any], error: type[Exception], facts: str, spec: str = "") -> Any:
        """Return a row; `spec` names rows of the specification that it covers, and it and `facts` have `|` between."""
        covered = [name if name.count(":") > 1 else f"{table}:{name}" for name in spec.split("|") if name]
        return pytest.param(call, error, facts, marks=[pytest.mark.spec(name) for name in covered])

    return mistake


def check(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    """Make the mistake, and check its exception."""
    with pytest.raises(error) as caught:
        call()
    missing = [fact for fact in facts.split("|") if fact not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
