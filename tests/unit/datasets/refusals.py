"""Rows of a corpus of mistakes: the mistake, its exception, and the facts in the message."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest


def mistake(call: Callable[[], Any], error: type[Exception], *facts: str, spec: str = "") -> Any:
    """Return a parameter of a test; `spec` names the row that it covers."""
    marks = [pytest.mark.spec(spec)] if spec else []
    return pytest.param(call, error, facts, marks=marks)


def check(call: Callable[[], Any], error: type[Exception], facts: tuple[str, ...]) -> None:
    """Make the mistake, and check its exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error) as caught:
            call()
    missing = [fact for fact in facts if fact not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
